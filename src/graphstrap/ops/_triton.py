"""The sparse product on CUDA, as a Triton kernel: one program for each row and block of columns, no atomics.

An edge whose weight is 0 (dropped by the view) is not gathered at all. PyTorch's embedding_bag gathers it and takes
twice as
long (docs/LOG.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a PyTorch without CUDA comes without Triton
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = True

    @triton.jit  # type: ignore[untyped-decorator]
    def _csr_times_kernel(  # type: ignore[no-untyped-def]
        indptr,
        indices,
        values,
        table,
        out,
        num_columns,
        block_edges: tl.constexpr,
        block_columns: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        columns = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
        inside = columns < num_columns
        end = tl.load(indptr + row + 1)
        total = tl.zeros((block_columns,), dtype=tl.float32)
        for first in range(tl.load(indptr + row), end, block_edges):
            edge = first + tl.arange(0, block_edges)
            weight = tl.load(values + edge, mask=edge < end, other=0.0).to(tl.float32)
            source = tl.load(indices + edge, mask=edge < end, other=0).to(tl.int64)
            wanted = (weight != 0.0)[:, None] & inside[None, :]
            gathered = tl.load(table + source[:, None] * num_columns + columns[None, :], mask=wanted, other=0.0)
            total += tl.sum(gathered.to(tl.float32) * weight[:, None], axis=0)
        tl.store(out + row * num_columns + columns, total, mask=inside)


def csr_times(indptr: Tensor, indices: Tensor, values: Tensor, table: Tensor) -> Tensor:
    """The CSR matrix (R, C) times the dense table (C, D): (R, D), accumulated in float32."""
    num_rows, num_columns = len(indptr) - 1, table.shape[1]
    table = table.contiguous()
    out = torch.empty(num_rows, num_columns, dtype=table.dtype, device=table.device)
    block_columns = min(128, triton.next_power_of_2(num_columns))
    grid = (num_rows, triton.cdiv(num_columns, block_columns))
    kernel: Any = _csr_times_kernel
    kernel[grid](
        indptr, indices, values, table, out, num_columns, block_edges=16, block_columns=block_columns, num_warps=4
    )
    return out
