"""What the backend ``reference`` offers, whatever the algorithm."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from backends.reference_algorithm import CPU
from convwright.backends.reference.backend import ALGORITHMS, Reference
from convwright.backends.reference.frequency.overlap import Line, quick_length
from convwright.core.candidate import Refusal
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from problem_space import problems


@settings(max_examples=50, deadline=None)
@given(problem=problems())
def test_every_algorithm_offers_or_refuses_with_a_reason(problem: ConvProblem) -> None:
    offers = [*Reference().candidates(problem, CPU, Policy())]
    assert [offer.id.partition("[")[0] for offer in offers[:2]] == ["reference/kn2row", "reference/gemm"]
    assert len({offer.id for offer in offers}) == len(offers)
    assert {offer.id.partition("[")[0] for offer in offers} == {f"reference/{name}" for name in ALGORITHMS}
    for offer in offers:
        if isinstance(offer, Refusal):
            assert any(character.isdigit() for character in offer.reason), "the value that is at fault is not named"
        else:
            plan = Reference().build(offer, CPU)
            assert (plan.candidate, plan.workspace_bytes) == (offer, offer.workspace_bytes)


def test_on_a_gpu_no_stride_beyond_32_bits_is_asked_for() -> None:
    """What computes there calls PyTorch's convolutions, which take such a number for a negative one."""
    beyond = ConvProblem.parse("ic8ih9oc8kh1sw2147483649")
    offers = [*Reference().candidates(beyond, profile("h200"), Policy())]
    assert all(isinstance(offer, Refusal) and "2,147,483,649" in offer.reason for offer in offers)
    assert not all(isinstance(offer, Refusal) for offer in Reference().candidates(beyond, CPU, Policy()))


def by_definition(line: Line, source: list[float], weight: list[float]) -> list[float]:
    placed = {line.lead + line.spacing * k: value for k, value in enumerate(source)}
    return [sum(w * placed.get(i + u, 0.0) for u, w in enumerate(weight)) for i in range(line.outputs)]


@pytest.mark.parametrize("lead", [-2, 0, 1, 3])
@pytest.mark.parametrize("spacing", [1, 2])
@pytest.mark.parametrize("outputs", [1, 4, 11])
@pytest.mark.parametrize("length", [None, 5, 8])
def test_circular_correlations_of_tiles_are_the_long_one(
    lead: int, spacing: int, outputs: int, length: int | None
) -> None:
    line = Line(size=5, spacing=spacing, lead=lead, outputs=outputs, reach=3)
    cut = line.whole() if length is None else line.tiled(length)
    source, weight = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, -2.0, 5.0]
    placed, outputs_of = torch.zeros(cut.source.extent), []
    placed[cut.source.put] = torch.tensor(source)[cut.source.taken]
    for tile in placed.unfold(0, cut.source.window, cut.source.hop).tolist():
        wrapped = [sum(w * tile[(i + u) % cut.length] for u, w in enumerate(weight)) for i in range(cut.step)]
        outputs_of.extend(wrapped)
    assert outputs_of[:outputs] == by_definition(line, source, weight)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_part_of_the_tiles_reads_what_they_read(first: int) -> None:
    cut = Line(size=20, spacing=1, lead=2, outputs=18, reach=3).tiled(8)
    part, source = cut.part(first, 2), torch.arange(1.0, 21.0)
    tiles = []
    for each in (cut.source, part.source):
        placed = torch.zeros(each.extent)
        placed[each.put] = source[each.taken]
        tiles.append(placed.unfold(0, each.window, each.hop))
    assert torch.equal(tiles[1], tiles[0][first : first + part.count])
    assert part.skipped == first * cut.step


def test_quick_lengths_have_small_factors() -> None:
    lengths = {quick_length(least) for least in range(1, 300)}
    assert {121, 11, 13, 22}.isdisjoint(lengths)
    assert {1, 2, 3, 5, 7, 210, 256} <= lengths
    assert all(quick_length(least) >= least for least in range(300))
