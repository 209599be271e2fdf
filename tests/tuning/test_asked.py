"""An algorithm that is asked for by name: by its id, its family, inside rewrites, or refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from convwright.backends.reference.backend import Reference
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, Refused
from tuning.made import PROBLEM, FakeTuner, candidate, choose


@pytest.mark.parametrize(
    "algorithm", ["torch/default", "reference/gemm", "relayout(nhwc, reference/gemm)", "split-batch(2, torch/default)"]
)
def test_an_algorithm_by_its_exact_id(algorithm: str, fake: FakeTuner) -> None:
    choice = choose(algorithm)
    assert choice.candidate.id == algorithm
    assert choice.is_torch == (algorithm == "torch/default")
    assert fake.calls == []


def test_a_family_inside_a_rewrite_is_the_first_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def offers(self: Any, problem: ConvProblem, *_: Any) -> Iterator[Candidate]:
        yield from (replace(candidate("reference/direct", (("tile", size),)), problem=problem) for size in (16, 8))

    monkeypatch.setattr(Reference, "candidates", offers)
    assert choose("split-batch(2, reference/direct)").candidate.id == "split-batch(2, reference/direct[tile=16])"
    assert choose("split-batch(2, reference/direct[tile=8])").candidate.leaf.id == "reference/direct[tile=8]"


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ("split-batch(2, triton/implicit-gemm)", r"inside it, triton/implicit-gemm cannot compute .* NVIDIA"),
        (
            "split-batch(2, unfuse(torch/default))",
            r"inside it, unfuse\(torch/default\) cannot .*: its epilogue is none",
        ),
        ("unfuse(torch/default)", "its epilogue is none"),
        (
            "split-batch(3, torch/default)",
            r"split-batch has no such form; its forms here are split-batch\(2, …\)$",
        ),
    ],
)
def test_a_refusal_inside_a_rewrite_keeps_its_reason(algorithm: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as said:
        choose(algorithm)
    assert str(said.value).startswith(f"{algorithm} cannot compute {PROBLEM.key}: ")
    assert "\n" not in str(said.value)


def test_an_algorithm_by_its_family_is_the_first_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def offers(*_: Any) -> Iterator[Candidate]:
        yield from (candidate("reference/direct", (("tile", size),)) for size in (16, 8, 32))

    monkeypatch.setattr(Reference, "candidates", offers)
    assert choose("reference/direct").candidate.id == "reference/direct[tile=16]"
    assert choose("reference/direct[tile=32]").candidate.id == "reference/direct[tile=32]"
    with pytest.raises(BadInput, match="'reference/direct\\[tile=64\\]' is not a configuration here"):
        choose("reference/direct[tile=64]")


def test_an_unknown_algorithm() -> None:
    with pytest.raises(BadInput, match="no algorithm here is called 'cudnn/magic'; for this problem there are") as said:
        choose("cudnn/magic")
    assert all(known in str(said.value) for known in ("reference/gemm", "torch/default"))


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (
            "split-batch(2, torch/magic)",
            r"^inside split-batch\(2, …\): no algorithm here is called 'torch/magic'; for this problem .*gemm",
        ),
        ("magic(2, torch/default)", "^no rewrite is called 'magic'; there are as-2d, .*unfuse$"),
        (
            "split-batch(two, torch/default)",
            r"^no algorithm here is called 'split-batch\(two, .* here are split-batch\(2",
        ),
        ("split-batch(2, torch/default", r"^no algorithm here is called 'split-batch\(2, torch/default'"),
        (
            "split-batch(2, relayout(up, torch/default))",
            r"^inside split-batch\(2, …\): no algorithm .* relayout\(nhwc, …\)$",
        ),
    ],
)
def test_a_part_of_a_name_that_stands_for_nothing(algorithm: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as said:
        choose(algorithm)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("algorithm", ["cudnn/gemm", "cudnn/gemm[math=tf32]", "triton/implicit-gemm"])
def test_a_refused_algorithm_gives_its_reason(algorithm: str) -> None:
    with pytest.raises(Refused, match="NVIDIA") as said:
        choose(algorithm)
    assert str(said.value).startswith(f"{algorithm} cannot compute {PROBLEM.key}: ")
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("how", ["the first configuration", "a name inside a rewrite"])
def test_of_a_family_the_first_that_the_policy_allows_is_taken(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def offers(self: Any, problem: ConvProblem, *_: Any) -> Iterator[Candidate]:
        for size, certain in ((16, False), (8, True), (4, True)):
            made = candidate("reference/direct", (("tile", size),), deterministic=certain)
            yield replace(made, problem=problem)

    monkeypatch.setattr(Reference, "candidates", offers)
    name, exact = "reference/direct", "reference/direct[tile=16]"
    if how == "a name inside a rewrite":
        name, exact = f"split-batch(2, {name})", f"split-batch(2, {exact})"
    assert choose(name).candidate.leaf.id == "reference/direct[tile=16]"
    assert choose(name, policy=Policy(deterministic=True)).candidate.leaf.id == "reference/direct[tile=8]"
    assert choose(exact).candidate.id == exact
    with pytest.raises(Refused) as said:
        choose(exact, policy=Policy(deterministic=True))
    assert str(said.value) == (
        f"the policy forbids {exact}, which is not deterministic: change the policy, or name another algorithm"
    )


@pytest.mark.parametrize("known", [True, False])
def test_only_a_limit_that_the_user_sets_forbids_a_workspace(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workspace that is unknown before a plan is built is read from the plan."""

    def offers(self: Any, problem: ConvProblem, *_: Any) -> Iterator[Candidate]:
        made = candidate("reference/gemm", workspace_bytes=1 << 50 if known else None)
        yield replace(made, problem=problem)

    monkeypatch.setattr(Reference, "candidates", offers)
    monkeypatch.setattr(Reference, "build", lambda self, candidate, device: SimpleNamespace(workspace_bytes=1 << 50))
    assert choose("reference/gemm").candidate.id == "reference/gemm"
    allowed = Policy(max_workspace_bytes=1 << 50)
    assert choose("reference/gemm", policy=allowed).candidate.id == "reference/gemm"
    with pytest.raises(Refused, match=r"^the policy forbids reference/gemm, which needs .* bytes of workspace, 0 "):
        choose("reference/gemm", policy=Policy(max_workspace_bytes=0))
