# mypy: disable-error-code="untyped-decorator, no-untyped-def"
"""What follows a product, fused into Triton kernels: normalisation with PReLU, bias with PReLU, and the row cosine.

With p(z) = z where z > 0, else a z; g the gradient of the output; s(z) = 1 where z > 0, else a; sums over rows i:

    batch norm    n = (x - mean_i x) r,  r = (var_i x + eps)^-1/2,  y = p(w n + b),  u = g s(w n + b)
                  dw = sum u n,  db = sum u,  dx = w r (u - db / N - n dw / N)
    layer norm    n = (x + c - mean) r over each row,  y = p(w n + b),  u = g s(w n + b),  v = w u
                  dw = sum u n,  db = sum u,  dx = r (v - mean v - n mean (v n)) over each row,  dc = sum dx
    bias          y = p(x + b),  dx = g s(x + b),  db = sum dx
    all three     da = sum of g z over every element with z <= 0, z being what p is applied to
    row cosine    c = q.t / (|q| |t|),  dq = g (t / |t| - c q / |q|) / |q|; lengths are at least 1e-8

Memory: x is saved, with a mean and a factor r for each column or row; n and z are made again. The cosine saves q and t.
Rounding: float32 throughout, whatever x is. Batch norm does not see a shift, so its kernels work on x minus the first
row of x, which keeps the small variance of a column with a large mean; Welford's update and Chan's formula do the rest.
Order: a sum over rows is taken in parts, one for each program, and a second kernel adds the parts up: no atomics, the
same bits every time. Nothing waits for the device and no shape depends on data, so a CUDA graph can hold all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

try:
    import triton
    import triton.language as tl
except ImportError:  # a PyTorch without CUDA comes without Triton
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = True

    # A program owns `rows_per_program` rows of one block of columns and walks down them, one tile at a time.

    @triton.jit
    def _own_columns(num_columns, block_columns: tl.constexpr):
        columns = tl.program_id(0) * block_columns + tl.arange(0, block_columns)
        return columns, columns < num_columns

    @triton.jit
    def _own_rows(num_rows, rows_per_program):
        first = tl.program_id(1) * rows_per_program
        return first, tl.minimum(first + rows_per_program, num_rows)

    @triton.jit
    def _tile(first, last, columns, inside, num_columns, block_rows: tl.constexpr):
        rows = first + tl.arange(0, block_rows)
        place = rows.to(tl.int64)[:, None] * num_columns + columns[None, :]
        return rows, place, (rows < last)[:, None] & inside[None, :]

    @triton.jit
    def _read(source, place, here):
        return tl.load(source + place, mask=here, other=0.0).to(tl.float32)

    @triton.jit
    def _prelu(z, slope):
        return tl.where(z > 0, z, slope * z)

    @triton.jit
    def _through_prelu(gradient, z, slope):
        """The gradient for z, and what each element adds to the gradient for the slope."""
        return tl.where(z > 0, gradient, slope * gradient), tl.where(z > 0, 0.0, gradient * z)

    @triton.jit
    def _moments_kernel(
        x,
        mean_parts,
        square_parts,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """Mean, and sum of squared deviations from it, of a program's rows of x - x[0]."""
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        origin = _read(x, columns, inside)
        mean = tl.zeros((block_rows, block_columns), dtype=tl.float32)  # of each lane's rows
        square = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        seen = 0.0
        for start in range(first, last, block_rows):
            _, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            value = _read(x, place, here) - origin[None, :]
            seen += 1.0
            step = tl.where(here, value - mean, 0.0)
            mean += step * (1.0 / seen)
            square += step * (value - mean)
        lanes = tl.arange(0, block_rows)
        count = ((last - first + block_rows - 1 - lanes) // block_rows).to(tl.float32)[:, None]
        part_mean = tl.sum(count * mean, axis=0) / ((last - first) * 1.0)
        gap = mean - part_mean[None, :]
        target = tl.program_id(1) * num_columns + columns
        tl.store(mean_parts + target, part_mean, mask=inside)
        tl.store(square_parts + target, tl.sum(square + count * gap * gap, axis=0), mask=inside)

    @triton.jit
    def _join_moments_kernel(
        x,
        mean_parts,
        square_parts,
        mean,
        rstd,
        running_mean,
        running_var,
        num_rows,
        num_columns,
        num_parts,
        rows_per_part,
        new_batch_weight,
        eps,
        block_parts: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """The moments of all rows, from those of the parts; and the running statistics, moved towards them."""
        columns, inside = _own_columns(num_columns, block_columns)
        parts = tl.arange(0, block_parts)
        rows = tl.minimum(num_rows - parts * rows_per_part, rows_per_part)
        count = tl.where(parts < num_parts, rows, 0).to(tl.float32)[:, None]
        place = parts[:, None] * num_columns + columns[None, :]
        here = (parts < num_parts)[:, None] & inside[None, :]
        part_mean = _read(mean_parts, place, here)
        total = num_rows * 1.0
        batch_mean = tl.sum(count * part_mean, axis=0) / total
        gap = part_mean - batch_mean[None, :]
        square = tl.sum(_read(square_parts, place, here) + count * gap * gap, axis=0)
        tl.store(mean + columns, batch_mean, mask=inside)
        tl.store(rstd + columns, tl.rsqrt(square / total + eps), mask=inside)
        old_weight = 1.0 - new_batch_weight
        new_mean = batch_mean + _read(x, columns, inside)
        new_var = square / tl.maximum(total - 1.0, 1.0)
        old_mean, old_var = _read(running_mean, columns, inside), _read(running_var, columns, inside)
        tl.store(running_mean + columns, old_weight * old_mean + new_batch_weight * new_mean, mask=inside)
        tl.store(running_var + columns, old_weight * old_var + new_batch_weight * new_var, mask=inside)

    @triton.jit
    def _batch_norm_kernel(
        x,
        slope,
        weight,
        bias,
        mean,
        rstd,
        out,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        a = tl.load(slope).to(tl.float32)
        origin, m, b = _read(x, columns, inside), _read(mean, columns, inside), _read(bias, columns, inside)
        r = _read(rstd, columns, inside)
        scale = _read(weight, columns, inside) * r
        for start in range(first, last, block_rows):
            _, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            gap = _read(x, place, here) - origin[None, :] - m[None, :]
            tl.store(out + place, _prelu(gap * scale[None, :] + b[None, :], a), mask=here)

    @triton.jit
    def _batch_norm_sums_kernel(
        x,
        gradient,
        slope,
        weight,
        bias,
        mean,
        rstd,
        parts,
        slope_parts,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """A program's share of dw, db and da."""
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        a = tl.load(slope).to(tl.float32)
        origin, m, b = _read(x, columns, inside), _read(mean, columns, inside), _read(bias, columns, inside)
        r = _read(rstd, columns, inside)
        scale = _read(weight, columns, inside) * r
        for_weight = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_bias = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_slope = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for start in range(first, last, block_rows):
            _, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            gap = _read(x, place, here) - origin[None, :] - m[None, :]
            u, da = _through_prelu(_read(gradient, place, here), gap * scale[None, :] + b[None, :], a)
            for_weight += u * gap
            for_bias += u
            for_slope += da
        target = parts + tl.program_id(1) * 2 * num_columns + columns
        tl.store(target, tl.sum(for_weight, axis=0) * r, mask=inside)
        tl.store(target + num_columns, tl.sum(for_bias, axis=0), mask=inside)
        program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        tl.store(slope_parts + program, tl.sum(tl.sum(for_slope, axis=0), axis=0))

    @triton.jit
    def _batch_norm_gradient_kernel(
        x,
        gradient,
        slope,
        weight,
        bias,
        mean,
        rstd,
        sums,
        for_x,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        a = tl.load(slope).to(tl.float32)
        origin, m, b = _read(x, columns, inside), _read(mean, columns, inside), _read(bias, columns, inside)
        r = _read(rstd, columns, inside)
        scale = _read(weight, columns, inside) * r
        r_mean_un = r * _read(sums, columns, inside) / (num_rows * 1.0)
        mean_u = _read(sums + num_columns, columns, inside) / (num_rows * 1.0)
        for start in range(first, last, block_rows):
            _, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            gap = _read(x, place, here) - origin[None, :] - m[None, :]
            u, _ = _through_prelu(_read(gradient, place, here), gap * scale[None, :] + b[None, :], a)
            dx = scale[None, :] * (u - mean_u[None, :] - gap * r_mean_un[None, :])
            tl.store(for_x + place, dx, mask=here)

    @triton.jit
    def _layer_norm_kernel(
        x,
        slope,
        shift,
        weight,
        bias,
        mean,
        rstd,
        out,
        num_rows,
        num_columns,
        rows_per_program,
        eps,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        a = tl.load(slope).to(tl.float32)
        c = _read(shift, columns, inside)
        w, b = _read(weight, columns, inside), _read(bias, columns, inside)
        for start in range(first, last, block_rows):
            rows, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            value = _read(x, place, here) + c[None, :]
            m = tl.sum(value, axis=1) / (num_columns * 1.0)
            gap = tl.where(inside[None, :], value - m[:, None], 0.0)
            r = tl.rsqrt(tl.sum(gap * gap, axis=1) / (num_columns * 1.0) + eps)
            z = gap * r[:, None] * w[None, :] + b[None, :]
            tl.store(out + place, _prelu(z, a), mask=here)
            tl.store(mean + rows, m, mask=rows < last)
            tl.store(rstd + rows, r, mask=rows < last)

    @triton.jit
    def _layer_norm_gradient_kernel(
        x,
        gradient,
        slope,
        shift,
        weight,
        bias,
        mean,
        rstd,
        for_x,
        parts,
        slope_parts,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """dx, and a program's share of dw, db, dc and da."""
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        a = tl.load(slope).to(tl.float32)
        c = _read(shift, columns, inside)
        w, b = _read(weight, columns, inside), _read(bias, columns, inside)
        for_weight = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_bias = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_shift = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_slope = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for start in range(first, last, block_rows):
            rows, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            m, r = _read(mean, rows, rows < last), _read(rstd, rows, rows < last)
            n = (_read(x, place, here) + c[None, :] - m[:, None]) * r[:, None]
            u, da = _through_prelu(_read(gradient, place, here), n * w[None, :] + b[None, :], a)
            v = u * w[None, :]
            mean_v = tl.sum(v, axis=1) / (num_columns * 1.0)
            mean_vn = tl.sum(v * n, axis=1) / (num_columns * 1.0)
            dx = r[:, None] * (v - mean_v[:, None] - n * mean_vn[:, None])
            tl.store(for_x + place, dx, mask=here)
            for_weight += u * n
            for_bias += u
            for_shift += dx
            for_slope += da
        target = parts + tl.program_id(1) * 3 * num_columns + columns
        tl.store(target, tl.sum(for_weight, axis=0), mask=inside)
        tl.store(target + num_columns, tl.sum(for_bias, axis=0), mask=inside)
        tl.store(target + 2 * num_columns, tl.sum(for_shift, axis=0), mask=inside)
        tl.store(slope_parts + tl.program_id(1), tl.sum(tl.sum(for_slope, axis=0), axis=0))

    @triton.jit
    def _bias_kernel(
        x,
        slope,
        bias,
        out,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        a = tl.load(slope).to(tl.float32)
        b = _read(bias, columns, inside)
        for start in range(first, last, block_rows):
            _, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            tl.store(out + place, _prelu(_read(x, place, here) + b[None, :], a), mask=here)

    @triton.jit
    def _bias_gradient_kernel(
        x,
        gradient,
        slope,
        bias,
        for_x,
        parts,
        slope_parts,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        """dx, and a program's share of db and da."""
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        a = tl.load(slope).to(tl.float32)
        b = _read(bias, columns, inside)
        for_bias = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for_slope = tl.zeros((block_rows, block_columns), dtype=tl.float32)
        for start in range(first, last, block_rows):
            _, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            dx, da = _through_prelu(_read(gradient, place, here), _read(x, place, here) + b[None, :], a)
            tl.store(for_x + place, dx, mask=here)
            for_bias += dx
            for_slope += da
        tl.store(parts + tl.program_id(1) * num_columns + columns, tl.sum(for_bias, axis=0), mask=inside)
        program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        tl.store(slope_parts + program, tl.sum(tl.sum(for_slope, axis=0), axis=0))

    @triton.jit
    def _add_parts_kernel(
        parts,
        slope_parts,
        sums,
        slope_sum,
        num_parts,
        num_columns,
        num_slope_parts,
        block_parts: tl.constexpr,
        block_columns: tl.constexpr,
        block_slope_parts: tl.constexpr,
    ):
        """Column sums of the parts; the last program adds up the slope's parts instead."""
        if tl.program_id(0) + 1 < tl.num_programs(0):
            columns, inside = _own_columns(num_columns, block_columns)
            _, place, here = _tile(0, num_parts, columns, inside, num_columns, block_parts)
            tl.store(sums + columns, tl.sum(_read(parts, place, here), axis=0), mask=inside)
        else:
            total = tl.zeros((block_slope_parts,), dtype=tl.float32)
            for start in range(0, num_slope_parts, block_slope_parts):
                part = start + tl.arange(0, block_slope_parts)
                total += _read(slope_parts, part, part < num_slope_parts)
            tl.store(slope_sum, tl.sum(total, axis=0))

    @triton.jit
    def _cosine_kernel(
        q,
        t,
        cosine,
        q_length,
        t_length,
        num_rows,
        num_columns,
        rows_per_program,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        for start in range(first, last, block_rows):
            rows, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            q_rows, t_rows = _read(q, place, here), _read(t, place, here)
            q_size = tl.maximum(tl.sqrt(tl.sum(q_rows * q_rows, axis=1)), 1e-8)
            t_size = tl.maximum(tl.sqrt(tl.sum(t_rows * t_rows, axis=1)), 1e-8)
            dot = tl.sum(q_rows * t_rows, axis=1)  # a NaN that the maximum swallows is here too
            tl.store(cosine + rows, dot / (q_size * t_size), mask=rows < last)
            tl.store(q_length + rows, q_size, mask=rows < last)
            tl.store(t_length + rows, t_size, mask=rows < last)

    @triton.jit
    def _cosine_gradient_kernel(
        q,
        t,
        cosine,
        q_length,
        t_length,
        gradient,
        for_q,
        num_rows,
        num_columns,
        rows_per_program,
        gradient_stride,
        block_rows: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        columns, inside = _own_columns(num_columns, block_columns)
        first, last = _own_rows(num_rows, rows_per_program)
        for start in range(first, last, block_rows):
            rows, place, here = _tile(start, last, columns, inside, num_columns, block_rows)
            inside_rows = rows < last
            g = _read(gradient, rows.to(tl.int64) * gradient_stride, inside_rows)
            q_size = tl.load(q_length + rows, mask=inside_rows, other=1.0)
            t_size = tl.load(t_length + rows, mask=inside_rows, other=1.0)
            of_t = tl.where(q_size > 1e-8, g / (q_size * t_size), 0.0)  # a row of zeros: see the reference
            of_q = -g * _read(cosine, rows, inside_rows) / (q_size * q_size)
            dq = of_t[:, None] * _read(t, place, here) + of_q[:, None] * _read(q, place, here)
            tl.store(for_q + place, dq, mask=here)


# Sizes for an H200: enough programs for its 132 multiprocessors, few enough that those which sum over rows run at once.
TILE = 2048  # elements that a program holds at a time
SUM_TILE = 1024  # the same where it also holds several running sums
MAX_PROGRAMS = 16_384  # of a pass that only reads and writes
MAX_MOMENT_PROGRAMS = 1024
MAX_SUM_PROGRAMS = 5 * 132
MAX_PARTS = 512  # parts that a sum over rows is taken in
COLUMNS = 64  # of a tile, where a row need not be held whole
JOIN_COLUMNS = 8  # of a program that adds up parts: one sector of memory


def batch_norm_prelu(
    x: Tensor,
    slope: Tensor,
    *,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    new_batch_weight: float,
    eps: float,
) -> Tensor:
    """prelu(batch_norm(x)) of x (N, D) with the batch's own statistics; moves the running ones in place."""
    statistics = running_mean, running_var, new_batch_weight, eps
    result: Tensor = _BatchNormPReLU.apply(x, slope, weight, bias, *statistics)  # type: ignore[no-untyped-call]
    return result


def layer_norm_prelu(x: Tensor, slope: Tensor, *, shift: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """prelu(layer_norm(x + shift)) of every row of x (N, D)."""
    result: Tensor = _LayerNormPReLU.apply(x, slope, shift, weight, bias, eps)  # type: ignore[no-untyped-call]
    return result


def bias_prelu(x: Tensor, slope: Tensor, *, bias: Tensor) -> Tensor:
    """prelu(x + bias) of x (N, D)."""
    result: Tensor = _BiasPReLU.apply(x, slope, bias)  # type: ignore[no-untyped-call]
    return result


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """(N,) float32 cosine of each row of q with the same row of t. Gradient flows to q alone."""
    result: Tensor = _RowCosine.apply(q, t)  # type: ignore[no-untyped-call]
    return result


class _BatchNormPReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        slope: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        new_batch_weight: float,
        eps: float,
    ) -> Tensor:
        x = x.contiguous()
        mean, rstd = _batch_moments(x, running_mean, running_var, new_batch_weight, eps)
        out = torch.empty_like(x)
        _run(_batch_norm_kernel, _by_tiles(x), x, slope, weight, bias, mean, rstd, out)
        ctx.save_for_backward(x, slope, weight, bias, mean, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, slope, *columns = ctx.saved_tensors
        gradient = gradient.contiguous()
        plan = _by_parts(x)
        parts, slope_parts = _empty_parts(x, plan, kinds=2)
        _run(_batch_norm_sums_kernel, plan, x, gradient, slope, *columns, parts, slope_parts)
        sums, for_slope = _add_parts(parts, slope_parts)
        for_x = torch.empty_like(x)
        _run(_batch_norm_gradient_kernel, _by_tiles(x), x, gradient, slope, *columns, sums, for_x)
        return for_x, for_slope, sums[0], sums[1], None, None, None, None


class _LayerNormPReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        out, mean, rstd = torch.empty_like(x), _empty(x, len(x)), _empty(x, len(x))
        _run(_layer_norm_kernel, _by_rows(x), x, slope, shift, weight, bias, mean, rstd, out, eps=eps)
        ctx.save_for_backward(x, slope, shift, weight, bias, mean, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x = ctx.saved_tensors[0]
        plan = _by_rows_in_parts(x)
        parts, slope_parts = _empty_parts(x, plan, kinds=3)
        for_x = torch.empty_like(x)
        inputs = x, gradient.contiguous(), *ctx.saved_tensors[1:]
        _run(_layer_norm_gradient_kernel, plan, *inputs, for_x, parts, slope_parts)
        (for_weight, for_bias, for_shift), for_slope = _add_parts(parts, slope_parts)
        return for_x, for_slope, for_shift, for_weight, for_bias, None


class _BiasPReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor, bias: Tensor) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        _run(_bias_kernel, _by_tiles(x), x, slope, bias, out)
        ctx.save_for_backward(x, slope, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, slope, bias = ctx.saved_tensors
        plan = _by_parts(x)
        parts, slope_parts = _empty_parts(x, plan, kinds=1)
        for_x = torch.empty_like(x)
        _run(_bias_gradient_kernel, plan, x, gradient.contiguous(), slope, bias, for_x, parts, slope_parts)
        sums, for_slope = _add_parts(parts, slope_parts)
        return for_x, for_slope, sums[0]


class _RowCosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, t: Tensor) -> Tensor:
        q, t = q.contiguous(), t.contiguous()
        cosine, q_length, t_length = (_empty(q, len(q)) for _ in range(3))
        _run(_cosine_kernel, _by_rows(q), q, t, cosine, q_length, t_length)
        ctx.save_for_backward(q, t, cosine, q_length, t_length)
        return cosine

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        q = ctx.saved_tensors[0]
        for_q = torch.empty_like(q)
        stride = gradient.stride(0)  # 0 under a sum
        _run(_cosine_gradient_kernel, _by_rows(q), *ctx.saved_tensors, gradient, for_q, gradient_stride=stride)
        return for_q, None


# ---- sums over rows ------------------------------------------------------------------------------------------------


def _batch_moments(
    x: Tensor, running_mean: Tensor, running_var: Tensor, new_batch_weight: float, eps: float
) -> tuple[Tensor, Tensor]:
    """(D,) mean of x - x[0], and 1 / sqrt(variance + eps)."""
    num_rows, num_columns = x.shape
    plan = _for_moments(x)
    mean_parts, square_parts = _empty(x, plan.num_parts, num_columns), _empty(x, plan.num_parts, num_columns)
    _run(_moments_kernel, plan, x, mean_parts, square_parts)
    mean, rstd = _empty(x, num_columns), _empty(x, num_columns)
    grid = (triton.cdiv(num_columns, JOIN_COLUMNS),)
    tensors = x, mean_parts, square_parts, mean, rstd, running_mean, running_var
    numbers = num_rows, num_columns, plan.num_parts, plan.rows_per_program, new_batch_weight, eps
    blocks = {"block_parts": triton.next_power_of_2(plan.num_parts), "block_columns": JOIN_COLUMNS}
    _launch(_join_moments_kernel, grid, *tensors, *numbers, **blocks)
    return mean, rstd


def _add_parts(parts: Tensor, slope_parts: Tensor) -> tuple[Tensor, Tensor]:
    """(kinds, D) and (1,): the parts, (P, kinds, D) and any shape, added up."""
    num_parts, kinds, num_columns = parts.shape
    sums, slope_sum = _empty(parts, kinds, num_columns), _empty(parts, 1)
    width = kinds * num_columns
    grid = (triton.cdiv(width, JOIN_COLUMNS) + 1,)
    numbers = num_parts, width, slope_parts.numel()
    blocks = {"block_parts": triton.next_power_of_2(num_parts), "block_columns": JOIN_COLUMNS}
    _launch(_add_parts_kernel, grid, parts, slope_parts, sums, slope_sum, *numbers, **blocks, block_slope_parts=1024)
    return sums, slope_sum


# ---- who does what -------------------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """How the rows and columns of a matrix are shared out among programs."""

    num_column_blocks: int
    num_parts: int  # programs along the rows
    rows_per_program: int
    block_rows: int
    block_columns: int


def _by_tiles(x: Tensor) -> _Plan:
    """For a pass that only reads and writes."""
    return _plan(x, tile=TILE, block_columns=COLUMNS, max_programs=MAX_PROGRAMS, max_parts=MAX_PROGRAMS)


def _for_moments(x: Tensor) -> _Plan:
    """For the pass that sums up to batch norm's moments."""
    return _plan(x, tile=TILE, block_columns=COLUMNS, max_programs=MAX_MOMENT_PROGRAMS, max_parts=MAX_PARTS)


def _by_parts(x: Tensor) -> _Plan:
    """For a pass that sums gradients over rows."""
    return _plan(x, tile=SUM_TILE, block_columns=COLUMNS, max_programs=MAX_SUM_PROGRAMS, max_parts=MAX_PARTS)


def _by_rows(x: Tensor) -> _Plan:
    """For a pass that needs each row whole."""
    width = triton.next_power_of_2(x.shape[1])
    return _plan(x, tile=TILE, block_columns=width, max_programs=MAX_PROGRAMS, max_parts=MAX_PROGRAMS)


def _by_rows_in_parts(x: Tensor) -> _Plan:
    """For one that needs each row whole and sums over rows."""
    width = triton.next_power_of_2(x.shape[1])
    return _plan(x, tile=SUM_TILE, block_columns=width, max_programs=MAX_PARTS, max_parts=MAX_PARTS)


def _plan(x: Tensor, *, tile: int, block_columns: int, max_programs: int, max_parts: int) -> _Plan:
    num_rows, num_columns = x.shape
    block_columns = min(block_columns, triton.next_power_of_2(num_columns))
    block_rows = max(1, tile // block_columns)
    num_column_blocks = triton.cdiv(num_columns, block_columns)
    max_parts = min(max_parts, max(1, max_programs // num_column_blocks))
    rows_per_program = triton.cdiv(triton.cdiv(num_rows, block_rows), max_parts) * block_rows
    num_parts = triton.cdiv(num_rows, rows_per_program)
    return _Plan(num_column_blocks, num_parts, rows_per_program, block_rows, block_columns)


def _run(kernel: Any, plan: _Plan, x: Tensor, *tensors: Tensor, **numbers: float) -> None:
    """Run a kernel over x (N, D) as planned."""
    blocks = {"block_rows": plan.block_rows, "block_columns": plan.block_columns}
    num_warps = min(16, max(4, plan.block_rows * plan.block_columns // 512))
    grid = plan.num_column_blocks, plan.num_parts
    _launch(kernel, grid, x, *tensors, *x.shape, plan.rows_per_program, **numbers, **blocks, num_warps=num_warps)


def _launch(kernel: Any, grid: tuple[int, ...], x: Tensor, *arguments: Tensor | float, **options: float) -> None:
    """Run a kernel on the device of its first argument."""
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        kernel[grid](x, *arguments, **options)


def _empty_parts(x: Tensor, plan: _Plan, *, kinds: int) -> tuple[Tensor, Tensor]:
    return _empty(x, plan.num_parts, kinds, x.shape[1]), _empty(x, plan.num_parts, plan.num_column_blocks)


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)
