"""Batches made ahead are the batches made when asked, failures arrive where they belong, and work overlaps."""

from __future__ import annotations

import threading

import pytest
import torch
from conftest import make_random_graph

from graphstrap.graph import Graph
from graphstrap.train.batches import Prefetcher, roots_at
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer

CPU = torch.device("cpu")


def make_maker(graph: Graph) -> tuple[Sampler, Gatherer]:
    return Sampler(graph, [4, 3]), Gatherer(graph)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_batches_do_not_depend_on_how_far_ahead_they_are_made(depth: int) -> None:
    graph = make_random_graph(num_nodes=300, num_edges=4000, seed=1)
    sampler, gatherer = make_maker(graph)

    def make(step: int) -> Graph:
        roots = roots_at(step, candidates=300, batch_size=20, seed=0)
        return gatherer.fill(sampler.sample(roots, seed=0, step=step))

    expected = {step: make(step) for step in range(1, 8)}
    prefetcher = Prefetcher(make, last_step=7, device=CPU, depth=depth)
    for step in (1, 2, 3, 6, 7, 2):  # in order, then with a leap and back
        batch = prefetcher(step)
        assert batch.edge_ids is not None
        assert torch.equal(batch.edge_ids, expected[step].edge_ids)  # type: ignore[arg-type]
    prefetcher.close()


def test_the_next_batch_is_made_while_this_one_is_used() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=40, seed=1)
    begun = {step: threading.Event() for step in range(1, 4)}

    def make(step: int) -> Graph:
        begun[step].set()
        return graph

    prefetcher = Prefetcher(make, last_step=3, device=CPU, depth=1)
    prefetcher(1)
    assert begun[2].wait(timeout=30)
    assert not begun[3].is_set()
    prefetcher.close()


def test_a_failure_is_raised_at_its_step() -> None:
    graph = make_random_graph(num_nodes=30, num_edges=40, seed=1)

    def make(step: int) -> Graph:
        if step == 2:
            raise RuntimeError("disk gone")
        return graph

    prefetcher = Prefetcher(make, last_step=5, device=CPU, depth=2)
    assert prefetcher(1) is graph
    with pytest.raises(RuntimeError, match="disk gone"):
        prefetcher(2)
    prefetcher.close()
