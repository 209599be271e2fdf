"""The tasks of a campaign: each is one worker's, in their order, without end."""

from __future__ import annotations

from convwright.campaign.campaign import Campaign
from convwright.campaign.problems import is_again, shares_of
from convwright.campaign.series import Series, Turns
from convwright.core.profiles import profile
from convwright.store.store import Store

H200 = profile("h200")


def series(store: Store, **changed: float) -> Series:
    return Series(Campaign("made", shares=shares_of("kinds"), **{"seed": 0, "repeat": 0.1, **changed}), H200, store)


def test_two_workers_share_the_sequence_and_more_is_added_when_it_ends() -> None:
    with Store.open(None) as store:
        first, second = Turns(series(store), "first", most=3), Turns(series(store), "second", most=2)
        taken = [turns.next() for _ in range(40) for turns in (first, second)]
    assert len({each.name for each in taken}) == 80
    once = sorted(each.number for each in taken if not each.again)
    again = {each.number for each in taken if each.again}
    assert once == list(range(len(once)))
    assert again == {number for number in range(64) if is_again(first.series.campaign, number)}
    assert again
    for each in taken:
        if each.again:
            assert each.problem == next(other.problem for other in taken if other.number == each.number)


def test_a_campaign_that_draws_otherwise_is_another_one() -> None:
    with Store.open(None) as store:
        one, other = series(store), series(store, seed=1)
        one.claim("worker", 5)
        assert sum(other.claims.counts().values()) == 0
        assert [each.number for each in series(store).claim("another", 1)] == [5]
        assert [each.number for each in other.claim("worker", 1)] == [0]
