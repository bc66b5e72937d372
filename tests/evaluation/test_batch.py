"""Laws of the rectangle: those at work stay, and what was taken out goes back to where it was."""

from __future__ import annotations

import torch

from graphstrap.evaluation.newton import all_places, count_at_work, narrow, put, take


def test_width_is_that_of_the_busiest_data_set() -> None:
    at_work = torch.tensor([[True, False, False, True, False], [False] * 5, [False, True, False, False, False]])
    assert count_at_work(at_work) == 2
    assert count_at_work(torch.zeros(3, 5, dtype=torch.bool)) == 0


def test_all_at_work_are_kept_in_their_order() -> None:
    at_work = torch.rand(6, 40, generator=torch.Generator().manual_seed(0)) < 0.3
    kept = narrow(at_work, count_at_work(at_work))
    assert kept is not None
    for number, (mask, places) in enumerate(zip(at_work, kept, strict=True)):
        expected = 40 * number + mask.nonzero()[:, 0]
        assert torch.equal(places[: len(expected)], expected)
        assert len(set(places.tolist())) == len(places)
        assert ((places >= 40 * number) & (places < 40 * (number + 1))).all()


def test_few_leavers_are_not_worth_it() -> None:
    at_work = torch.arange(10)[None] != 4
    assert narrow(at_work, 9) is None


def test_what_is_taken_and_put_back_changes_nothing_else() -> None:
    whole = torch.arange(24.0).view(2, 4, 3)
    places = torch.tensor([[3, 1], [4, 6]])
    taken = take(whole, places)
    assert torch.equal(taken[1, 1], whole[1, 2])
    assert torch.equal(take(whole[:, :, 0], places), taken[:, :, 0])
    answer = torch.zeros_like(whole)
    put(answer, places, taken)
    assert torch.equal(take(answer, places), taken)
    assert not take(answer, torch.tensor([[0, 2], [5, 7]])).any()
    assert torch.equal(take(whole, all_places(whole)), whole)
