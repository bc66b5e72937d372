"""Sampling as a fixed row of Triton kernels: no size is read back until the batch is whole, so that all of them can be
captured as one CUDA graph and replayed. The same bits as `Sampler` draws with any other means.

Every array has room for the most that the fan-outs allow; how much of it is used lives on the device, in `ends`:

    ends[0], ends[1], ...    nodes within 0, 1, ... hops        ends[H + 1], ...    edges after 0, 1, ... hops

    begin     roots take the first places
    a hop     count edges, prefix sum, draw them (the earlier place wins), mark those that found a node, prefix sum,
              give the found nodes their places
    end       places of all sources; degrees of the last hop; the table of places is cleared

For merged batches of one relation and no times or weights: what a GCN on a plain graph is trained on. Everything else
is sampled hop by hop.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.graph.views import child_seed
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch
from graphstrap.train.sampling.draw import NOT_FOUND

MAX_WIDTH = 256  # slots of a draw
MOST_NODES = 1 << 24  # room for a batch
_BLOCK = 512
_MOST_CAPTURED = 4

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


class _Buffers:
    """Room for a batch around so many roots, and for what it is made with."""

    def __init__(self, sampler: FusedSampler, num_roots: int) -> None:
        sizes, device = sampler.sizes(num_roots), sampler.graph.device

        def room(size: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        num_nodes, num_edges, num_hops = sum(sizes), sum(sizes[1:]), len(sizes) - 1
        self.roots, self.seeds = room(sizes[0]), room(num_hops)
        self.ends = torch.zeros(2 * num_hops + 2, dtype=torch.int64, device=device)
        self.ends[0] = sizes[0]
        self.nodes, self.missing = room(num_nodes), room(num_nodes, torch.float32)
        self.indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
        self.edges, self.sources = room(num_edges), room(num_edges)
        self.indices = room(num_edges, torch.int32)
        self.factors = room(num_edges if sampler.unbiased else 1, torch.float32)
        self.starts, self.degrees, self.counts, self.sums = (room(sizes[-2]) for _ in range(4))
        self.marks, self.ranks = room(sizes[-1]), room(sizes[-1])


class FusedSampler:
    """Draws merged batches of a plain graph; `places` is the sampler's own table."""

    def __init__(self, graph: Graph, fan_outs: list[int], *, places: Tensor, unbiased: bool) -> None:
        self.graph, self.fan_outs, self.places, self.unbiased = graph, fan_outs, places, unbiased
        self._seen: set[int] = set()
        self._captured: dict[int, tuple[_Buffers, torch.cuda.CUDAGraph]] = {}

    @staticmethod
    def can(graph: Graph, fan_outs: list[list[int]]) -> bool:
        """Whether batches of this graph are of the kind that is made here."""
        is_plain = len(graph.features) == 1 and graph.edge_types is None and graph.edge_weights is None
        return IS_AVAILABLE and is_plain and bool(fan_outs) and all(0 < row[0] <= MAX_WIDTH for row in fan_outs)

    def sizes(self, num_roots: int) -> list[int]:
        """The most nodes that 0, 1, ... hops may find."""
        return list(accumulate(self.fan_outs, lambda size, fan_out: size * fan_out, initial=num_roots))

    def has_room(self, num_roots: int) -> bool:
        return num_roots > 0 and sum(self.sizes(num_roots)) <= MOST_NODES

    def sample(self, roots: Tensor, seed: int) -> dict[str, Any]:
        """The columns of the batch around different roots (see `make_batch`); `seed` is that of the step."""
        seeds = torch.tensor([child_seed(seed, hop, 0) for hop in range(len(self.fan_outs))])
        if roots.is_cuda:
            seeds = seeds.pin_memory().to(roots.device, non_blocking=True)
        size = len(roots)
        # The first batch of a size is not captured: it compiles the kernels.
        if roots.is_cuda and size in self._seen and size not in self._captured and len(self._captured) < _MOST_CAPTURED:
            self._captured[size] = self._capture(size)
        self._seen.add(size)
        buffers, replay = self._captured.get(size) or (_Buffers(self, size), None)
        buffers.roots.copy_(roots, non_blocking=True)
        buffers.seeds.copy_(seeds, non_blocking=True)
        if replay is None:
            self._run(buffers)
        else:
            replay.replay()
        return self._cut(buffers, copied=replay is not None)

    def _capture(self, size: int) -> tuple[_Buffers, torch.cuda.CUDAGraph]:
        buffers, replay = _Buffers(self, size), torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(self.graph.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.graph.device))
        with torch.cuda.graph(replay, stream=stream, capture_error_mode="thread_local"):
            self._run(buffers)
        torch.cuda.current_stream(self.graph.device).wait_stream(stream)
        return buffers, replay

    def _run(self, b: _Buffers) -> None:
        """Every kernel of a batch, in order; nothing waits for the device."""
        graph, num_hops = self.graph, len(self.fan_outs)
        sizes = self.sizes(len(b.roots))

        def blocks(size: int) -> tuple[int]:
            return (triton.cdiv(size, _BLOCK),)

        launch(_begin_kernel, blocks(sizes[0]))(b.roots, b.nodes, self.places, sizes[0], block=_BLOCK)
        for hop, fan_out in enumerate(self.fan_outs):
            rows, drawn, which = sizes[hop], sizes[hop + 1], {"hop": hop, "block": _BLOCK}
            launch(_count_kernel, blocks(rows))(
                b.nodes, graph.indptr, b.ends, b.starts, b.degrees, b.counts, fan_out, rows, **which
            )
            torch.cumsum(b.counts[:rows], 0, out=b.sums[:rows])
            num_slots = triton.next_power_of_2(fan_out)
            num_lanes = max(1, min(32, 2048 // num_slots))
            launch(_draw_kernel, (triton.cdiv(rows, num_lanes),))(
                *(b.nodes, graph.indices, b.seeds, b.ends, b.starts, b.degrees, b.counts, b.sums, self.places),
                *(b.edges, b.sources, b.factors, b.indptr),
                hop=hop,
                num_hops=num_hops,
                has_factors=self.unbiased,
                width=fan_out,
                num_slots=num_slots,
                num_lanes=num_lanes,
            )
            launch(_mark_kernel, blocks(drawn))(
                b.sources, self.places, b.ends, b.sums, b.marks, drawn, rows - 1, num_hops=num_hops, **which
            )
            torch.cumsum(b.marks[:drawn], 0, out=b.ranks[:drawn])
            launch(_place_kernel, blocks(drawn))(
                *(b.sources, self.places, b.nodes, b.ends, b.sums, b.marks, b.ranks, drawn, rows - 1),
                num_hops=num_hops,
                **which,
            )
        launch(_source_kernel, blocks(sum(sizes[1:])))(
            b.sources, self.places, b.ends, b.indices, num_hops=num_hops, block=_BLOCK
        )
        launch(_end_kernel, blocks(sum(sizes)))(
            *(b.nodes, graph.indptr, self.places, b.ends, b.indptr, b.missing, NOT_FOUND),
            num_hops=num_hops,
            block=_BLOCK,
        )

    def _cut(self, b: _Buffers, *, copied: bool) -> dict[str, Any]:
        """What of the buffers is used; as copies where they are to be used again."""
        ends, num_hops = b.ends.tolist(), len(self.fan_outs)  # the one wait
        num_nodes, num_edges = ends[num_hops], ends[-1]

        def cut(tensor: Tensor, size: int) -> Tensor:
            return tensor[:size].clone() if copied else tensor[:size]

        return {
            "nodes": cut(b.nodes, num_nodes),
            "edges": cut(b.edges, num_edges),
            "indptr": cut(b.indptr, num_nodes + 1),
            "indices": cut(b.indices, num_edges),
            "edge_weights": cut(b.factors, num_edges) if self.unbiased else None,
            "missing_degrees": cut(b.missing, num_nodes) if self.unbiased else None,
            "hop_offsets": tuple(ends[: num_hops + 1]),
        }


if IS_AVAILABLE:
    import triton
    import triton.language as tl

    from graphstrap.ops._triton.masks import hash32
    from graphstrap.train.sampling.draw_triton import choose

    @triton.jit
    def _begin_kernel(roots, nodes, places, num_roots, block: tl.constexpr):
        i = tl.program_id(0) * block + tl.arange(0, block)
        inside = i < num_roots
        root = tl.load(roots + i, mask=inside, other=0)
        tl.store(nodes + i, root, mask=inside)
        tl.store(places + root, i, mask=inside)

    @triton.jit
    def _count_kernel(
        nodes, indptr, ends, starts, degrees, counts, fan_out, capacity, hop: tl.constexpr, block: tl.constexpr
    ):
        """Where the edges of each frontier node start, how many there are and how many are drawn."""
        i = tl.program_id(0) * block + tl.arange(0, block)
        first = 0
        if hop > 0:
            first = tl.load(ends + hop - 1)
        inside = i < tl.load(ends + hop) - first
        node = tl.load(nodes + first + i, mask=inside, other=0)
        start = tl.load(indptr + node, mask=inside, other=0)
        degree = tl.load(indptr + node + 1, mask=inside, other=0) - start
        tl.store(starts + i, start, mask=i < capacity)
        tl.store(degrees + i, degree, mask=i < capacity)
        tl.store(counts + i, tl.minimum(degree, fan_out), mask=i < capacity)

    @triton.jit
    def _draw_kernel(
        nodes,
        indices,
        seeds,
        ends,
        starts,
        degrees,
        counts,
        sums,
        places,
        edges,
        sources,
        factors,
        batch_indptr,
        hop: tl.constexpr,
        num_hops: tl.constexpr,
        has_factors: tl.constexpr,
        width: tl.constexpr,
        num_slots: tl.constexpr,
        num_lanes: tl.constexpr,
    ):
        """The edges of `num_lanes` nodes; every one asks for a place of its own for its source."""
        i = tl.program_id(0) * num_lanes + tl.arange(0, num_lanes)
        first = 0
        if hop > 0:
            first = tl.load(ends + hop - 1)
        num_nodes = tl.load(ends + hop)
        first_edge = tl.load(ends + num_hops + 1 + hop)
        inside = i < num_nodes - first
        word = hash32(tl.load(nodes + first + i, mask=inside, other=0), tl.load(seeds + hop + tl.zeros_like(i)))
        start = tl.load(starts + i, mask=inside, other=0)
        degree = tl.load(degrees + i, mask=inside, other=0)
        count = tl.load(counts + i, mask=inside, other=0)
        end = tl.load(sums + i, mask=inside, other=0)
        tl.store(batch_indptr + first + i + 1, first_edge + end, mask=inside)
        slot, chosen = choose(word, degree, count, width, num_slots)
        wanted = inside[:, None] & (slot < count[:, None])
        edge = start[:, None] + chosen
        into = (end - count)[:, None] + slot
        source = tl.load(indices + edge, mask=wanted, other=0).to(tl.int64)
        tl.store(edges + first_edge + into, edge, mask=wanted)
        tl.store(sources + first_edge + into, source, mask=wanted)
        if has_factors:
            factor = (degree.to(tl.float64) / tl.maximum(count, 1).to(tl.float64)).to(tl.float32)
            tl.store(factors + first_edge + into, tl.zeros_like(edge).to(tl.float32) + factor[:, None], mask=wanted)
        tl.atomic_min(places + source, (num_nodes + into).to(tl.int32), mask=wanted, sem="relaxed")

    @triton.jit
    def _mark_kernel(
        sources,
        places,
        ends,
        sums,
        marks,
        capacity,
        last,
        hop: tl.constexpr,
        num_hops: tl.constexpr,
        block: tl.constexpr,
    ):
        """1 for each edge that was the first to find its source."""
        i = tl.program_id(0) * block + tl.arange(0, block)
        inside = i < tl.load(sums + last)
        source = tl.load(sources + tl.load(ends + num_hops + 1 + hop) + i, mask=inside, other=0)
        place = tl.load(places + source, mask=inside, other=-1)
        is_first = inside & (place == (tl.load(ends + hop) + i).to(tl.int32))
        tl.store(marks + i, is_first.to(tl.int64), mask=i < capacity)

    @triton.jit
    def _place_kernel(
        sources,
        places,
        nodes,
        ends,
        sums,
        marks,
        ranks,
        capacity,
        last,
        hop: tl.constexpr,
        num_hops: tl.constexpr,
        block: tl.constexpr,
    ):
        """The nodes found take the next places, in the order in which they were found."""
        i = tl.program_id(0) * block + tl.arange(0, block)
        num_nodes, first_edge = tl.load(ends + hop), tl.load(ends + num_hops + 1 + hop)
        is_first = tl.load(marks + i, mask=i < capacity, other=0) > 0
        source = tl.load(sources + first_edge + i, mask=is_first, other=0)
        place = num_nodes + tl.load(ranks + i, mask=is_first, other=0) - 1
        tl.store(places + source, place.to(tl.int32), mask=is_first)
        tl.store(nodes + place, source, mask=is_first)
        if tl.program_id(0) == 0:
            tl.store(ends + hop + 1, num_nodes + tl.load(ranks + capacity - 1))
            tl.store(ends + num_hops + 2 + hop, first_edge + tl.load(sums + last))

    @triton.jit
    def _source_kernel(sources, places, ends, out, num_hops: tl.constexpr, block: tl.constexpr):
        i = tl.program_id(0) * block + tl.arange(0, block)
        inside = i < tl.load(ends + 2 * num_hops + 1)
        source = tl.load(sources + i, mask=inside, other=0)
        tl.store(out + i, tl.load(places + source, mask=inside, other=0), mask=inside)

    @triton.jit
    def _end_kernel(
        nodes, indptr, places, ends, batch_indptr, missing, not_found, num_hops: tl.constexpr, block: tl.constexpr
    ):
        """The last hop's nodes have no edges but their degrees; no place is taken any more."""
        i = tl.program_id(0) * block + tl.arange(0, block)
        inside = i < tl.load(ends + num_hops)
        is_last = inside & (i >= tl.load(ends + num_hops - 1))
        node = tl.load(nodes + i, mask=inside, other=0)
        degree = tl.load(indptr + node + 1, mask=is_last, other=0) - tl.load(indptr + node, mask=is_last, other=0)
        tl.store(missing + i, degree.to(tl.float32), mask=inside)
        tl.store(batch_indptr + i + 1, tl.load(ends + 2 * num_hops + 1) + tl.zeros_like(degree), mask=is_last)
        tl.store(places + node, tl.zeros_like(degree).to(tl.int32) + not_found, mask=inside)
