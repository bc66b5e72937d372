"""The kernels of `_fused.py`, in their order. `ends` says on the device how much of each array is used."""

from __future__ import annotations

from graphstrap.ops._triton.launch import IS_AVAILABLE

# mypy: disable-error-code="untyped-decorator, no-untyped-def"


if IS_AVAILABLE:
    import triton
    import triton.language as tl

    from graphstrap.ops._triton.masks import hash32, mix

    @triton.jit
    def begin_kernel(roots, nodes, places, num_roots, block: tl.constexpr):
        i = tl.program_id(0) * block + tl.arange(0, block)
        inside = i < num_roots
        root = tl.load(roots + i, mask=inside, other=0)
        tl.store(nodes + i, root, mask=inside)
        tl.store(places + root, i, mask=inside)

    @triton.jit
    def count_kernel(
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
    def draw_kernel(
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
        """Floyd's algorithm for `num_lanes` nodes; every edge asks for a place of its own for its source."""
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
        slot = tl.arange(0, num_slots)[None, :]
        last = (degree - count)[:, None] + slot  # (lanes, slots): j
        draw = mix(word[:, None] + slot.to(tl.uint32) * 0x9E3779B9).to(tl.int64)
        chosen = (draw * (last + 1)) >> 32  # t
        for k in range(1, width):
            mine = tl.sum(tl.where(slot == k, chosen, 0), axis=1)
            taken = tl.max(tl.where((slot < k) & (chosen == mine[:, None]), 1, 0), axis=1)
            mine = tl.where(taken > 0, degree - count + k, mine)
            chosen = tl.where(slot == k, mine[:, None], chosen)
        chosen = tl.where((degree > count)[:, None], chosen, slot.to(tl.int64))
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
    def mark_kernel(
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
    def place_kernel(
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
    def source_kernel(sources, places, ends, out, num_hops: tl.constexpr, block: tl.constexpr):
        i = tl.program_id(0) * block + tl.arange(0, block)
        inside = i < tl.load(ends + 2 * num_hops + 1)
        source = tl.load(sources + i, mask=inside, other=0)
        tl.store(out + i, tl.load(places + source, mask=inside, other=0), mask=inside)

    @triton.jit
    def finish_kernel(
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
