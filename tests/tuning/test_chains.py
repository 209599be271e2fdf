"""Rewrites, one inside another where that is of use; what they move; candidates found again by their names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.measuring.hardware.machine import device_facts
from convwright.prediction.estimates import ESTIMATES
from convwright.prediction.physics import least_us, moved_bytes, moving_us
from convwright.tuning import listing
from convwright.tuning.chains import chains
from convwright.tuning.ranking import by_promise

STEM = ConvProblem.parse("mb4ic3ih56oc8kh7sh2ph3 ep:bias+relu")
PROBLEMS = [
    STEM,
    ConvProblem.parse("mb2ic4ih8oc4kh3ph1"),
    ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dt:fp16 ep:residual+bias+relu"),
    ConvProblem.parse("mb8ic6iw40oc8kw3pw1 tag:nhwc"),
    ConvProblem.parse("g8mb2ic8ih9oc8kh3 dir:backward_data"),
    ConvProblem.parse("mb2ic5ih9oc7kh3 dir:backward_weight"),
]
H200 = profile("h200")


def expected_us(candidate: Candidate) -> float:
    said = ESTIMATES.predict(candidate, H200)
    assert said is not None
    return said.time_us.value


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
def test_no_chain_is_longer_than_two_or_has_a_rewrite_twice(problem: ConvProblem) -> None:
    found, _ = chains(problem, H200)
    for chain in found:
        used = [step.rewrite.name for step in chain.steps]
        assert 1 <= len(used) == len(set(used)) <= 2
        assert chain.steps[0].problem == problem
    inner = [chain.inner for chain in found]
    assert len(set(inner)) == len(inner), "no two lead to the same problem"
    assert problem not in inner
    assert len(found) <= 16


def test_pairs_are_those_that_are_of_use() -> None:
    pairs = {
        tuple(step.rewrite.name for step in chain.steps) for problem in PROBLEMS for chain in chains(problem, H200)[0]
    }
    assert {("unfuse", "relayout"), ("relayout", "pad-c")} <= pairs
    assert not any(pair[1:] in (("unfuse",), ("relayout",)) and pair[0] == "relayout" for pair in pairs)


def test_a_chain_cannot_win_if_its_copies_take_as_long_as_the_rest() -> None:
    problem = ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dt:fp16")
    found, _ = chains(problem, H200)
    relayout = next(chain for chain in found if [step.rewrite.name for step in chain.steps] == ["relayout"])
    copies_us = relayout.moved_bytes / 4.8e6 + 2.0
    assert relayout.cannot_win(copies_us / 0.39, H200) is None
    reason = relayout.cannot_win(copies_us / 0.41, H200)
    assert reason is not None
    assert f"its copies take {copies_us:.1f} µs" in reason
    split = next(chain for chain in found if chain.splits)
    assert split.cannot_win(1e9, H200) == "computes a batch in parts, which saves workspace and no time"


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
def test_every_candidate_is_found_again_by_its_name(problem: ConvProblem) -> None:
    cpu, policy = device_facts("cpu"), Policy()
    offers = [*listing.direct(problem, cpu, policy), *listing.rewritten(problem, cpu, policy)]
    listed = listing.candidates(offers)
    assert any(candidate.depth for candidate in listed)
    for candidate in listed:
        assert listing.with_id(candidate.id, problem, cpu, policy) == candidate
    for unknown in (
        "relayout(nhwc, cudnn/magic)",
        "relayout(sideways, torch/default)",
        "relayout(nhwc",
        "magic(1, a/b)",
    ):
        assert listing.with_id(unknown, problem, cpu, policy) is None


def test_the_bytes_that_a_chain_moves_are_those_of_its_parts() -> None:
    for chain in chains(STEM, H200)[0]:
        parts = sum(step.rewrite.moved_bytes(step.problem, step.arguments) for step in chain.steps)
        assert chain.moved_bytes >= parts
        leaf = listing.candidates(listing.direct(chain.inner, H200, Policy()))[0]
        assert moved_bytes(chain.wrap(leaf)) == chain.moved_bytes
        assert moved_bytes(leaf) == 0


def test_the_most_promising_chains_move_the_least_and_splitting_comes_last() -> None:
    ordered = sorted(chains(STEM, H200)[0], key=lambda chain: chain.effort)
    splits = [any(step.rewrite.name == "split-batch" for step in chain.steps) for chain in ordered]
    assert splits == sorted(splits)
    assert any(splits)
    whole = [chain.moved_bytes + chain.inner.bytes for chain in ordered if chain.inner.n == STEM.n]
    assert whole == sorted(whole)


def _bytes_us(problem: ConvProblem) -> float:
    assert H200.bandwidth_bytes_per_us is not None
    return problem.bytes / H200.bandwidth_bytes_per_us


def test_candidates_come_by_what_they_need_at_least() -> None:
    problem = ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dt:fp16")
    offers = [*listing.direct(problem, H200, Policy()), *listing.rewritten(problem, H200, Policy())]
    guessed = [candidate for candidate in listing.candidates(offers) if candidate.leaf.estimated_us is None]
    ordered = by_promise(guessed, H200)
    least = [least_us(candidate, H200) or 0.0 for candidate in ordered]
    assert least == sorted(least)
    by_id = {candidate.id: value for candidate, value in zip(ordered, least, strict=True)}
    plain, copied = by_id["reference/gemm"], by_id["relayout(nhwc, reference/gemm)"]
    assert H200.bandwidth_bytes_per_us is not None
    assert copied - plain == pytest.approx(2 * 2 * problem.x.nbytes / H200.bandwidth_bytes_per_us, rel=0.01)


def test_what_a_backend_estimates_comes_by_that_in_the_places_of_its_own() -> None:
    problem = ConvProblem.parse("mb32ic3ih224oc32kh3sh2ph1")  # few channels, which fill no tile of a product
    listed = listing.candidates(listing.direct(problem, H200, Policy()))
    ordered = by_promise(listed, H200)
    assert sorted(c.id for c in ordered) == sorted(c.id for c in listed)
    unestimated = [candidate for candidate in listed if candidate.backend != "triton"]
    assert [candidate for candidate in ordered if candidate.backend != "triton"] == by_promise(unestimated, H200)

    ours = [candidate for candidate in ordered if candidate.backend == "triton"]
    expected = [expected_us(candidate) for candidate in ours]
    assert expected[0] == min(expected)
    assert ours[0].algorithm == "wide-direct"
    # Others come before the last of its configurations, which promise more.
    first_direct = next(place for place, each in enumerate(ours) if each.algorithm == "direct")
    last_wide = max(place for place, each in enumerate(ours) if each.algorithm == "wide-direct")
    assert first_direct < last_wide


def test_a_rewrite_adds_what_it_moves_to_an_estimate() -> None:
    problem = ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dt:fp16")
    possible, _ = chains(problem, H200)
    chain = next(chain for chain in possible if [step.rewrite.name for step in chain.steps] == ["relayout"])
    direct = listing.candidates(listing.direct(chain.inner, H200, Policy()))
    leaf = next(candidate for candidate in direct if candidate.estimated_us is not None)
    around = chain.wrap(leaf)
    plain, copied = expected_us(leaf), expected_us(around)
    assert H200.bandwidth_bytes_per_us is not None
    assert copied - plain == pytest.approx(moved_bytes(around) / H200.bandwidth_bytes_per_us)
    assert moved_bytes(around) > 0


def test_idle_products_of_tiles_count_where_they_are_half_of_all() -> None:
    stem = ConvProblem.parse("mb16ic1oc32ih161iw700kh5kw20sh2sw2 dir:backward_data")
    kernels = [each for each in listing.candidates(listing.direct(stem, H200, Policy())) if each.backend == "triton"]
    ordered = by_promise(kernels, H200)
    assert {each.algorithm for each in ordered[:4]} == {"direct"}
    peak = H200.peak(Arithmetic.TF32)
    assert peak is not None
    tile = next(each for each in ordered if each.algorithm == "input-gradient-tf32" and dict(each.config)["bn"] == 16)
    assert tile.tiled is not None
    assert 16 <= tile.tiled / (stem.flops / 2) < 32
    assert least_us(tile, H200) == pytest.approx(16 * stem.flops / peak)
    layer = ConvProblem.parse("mb32ic60ih56oc60kh3ph1 tag:nhwc")
    for each in listing.candidates(listing.direct(layer, H200, Policy())):
        if each.algorithm == "implicit-gemm-tf32":
            assert least_us(each, H200) == pytest.approx(max(layer.flops / peak, _bytes_us(layer)))


def test_tiles_hold_each_product_once() -> None:
    for text in (
        "mb2ic64ih16oc64kh1 tag:nhwc",
        "mb2ic64ih16oc64kh2sh2 dir:backward_data tag:nhwc",
        "mb2ic64ih16oc64kh1 dir:backward_weight tag:nhwc",
    ):
        problem = ConvProblem.parse(f"{text} dt:fp16")
        held = [each.tiled for each in listing.candidates(listing.direct(problem, H200, Policy())) if each.tiled]
        assert problem.flops // 2 in held, "every tile of the sizes' divisors is full"
        assert min(held) == problem.flops // 2


def test_what_is_written_to_a_workspace_is_moved_whatever_products_are_saved() -> None:
    problem = ConvProblem.parse("mb32ic256ih14oc1024kh1")
    listed = {each.id: each for each in listing.candidates(listing.direct(problem, H200, Policy()))}
    fft = listed["reference/fft"]
    assert H200.bandwidth_bytes_per_us is not None
    assert fft.workspace_bytes is not None
    moved = problem.bytes + fft.workspace_bytes
    assert moving_us(fft, H200) == pytest.approx(moved / H200.bandwidth_bytes_per_us)
    assert moving_us(replace(fft, workspace_is_bound=True), H200) == pytest.approx(
        problem.bytes / H200.bandwidth_bytes_per_us
    )
    assert moving_us(fft, device_facts("cpu")) == 0.0


def test_on_a_cpu_whose_rates_are_not_known_the_backends_order_decides() -> None:
    cpu = device_facts("cpu")
    problem = ConvProblem.parse("mb2ic4ih8oc4kh3ph1")
    offers = [*listing.direct(problem, cpu, Policy()), *listing.rewritten(problem, cpu, Policy())]
    ordered = [candidate.id for candidate in by_promise(listing.candidates(offers), cpu)]
    assert ordered[:2] == ["torch/default", "reference/gemm"]
    assert least_us(listing.candidates(offers)[0], cpu) is None
