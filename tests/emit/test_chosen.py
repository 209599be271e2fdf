"""Which candidate a C file runs: what is named, what the store knows to be fast, or what cuDNN proposes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convwright.backends.cudnn.graph.listing import candidates, finalized
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Finding, Interval, KindError, Measurement
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.emit import chosen
from convwright.emit.chosen import best, by_name, gpu
from convwright.emit.one import emit_c
from convwright.errors import BadInput, Refused
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.choose import Verdict
from convwright.tuning.findings import Findings
from emit.forms import ENGINES, H200, algorithm, engine

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

PROBLEM = ConvProblem.parse("mb32ic64ih56oc64kh3ph1")


def proposed() -> list[Candidate]:
    return [offer for offer in candidates(PROBLEM, H200, Policy()) if isinstance(offer, Candidate)]


def measured(store: Store, id_: str, us: float, error: float = 1e-7) -> None:
    """A finding, as a full search would have left it."""
    time, errors = Interval(us, us, us), (KindError("normal", error, error * 2**24),)
    measurement = Measurement(time, None, errors, 0, 10, (("mode", "full"),))
    leaf = next(c for c in listing.candidates(listing.of_family(id_, PROBLEM, H200, Policy())))
    store.record(PROBLEM.key, H200.key, id_, listing.fingerprint(leaf, H200), measurement, None)


def test_without_measurements_it_is_what_cudnn_proposes_first() -> None:
    with Store.open(None) as store:
        assert best(PROBLEM, H200, Policy(), store) == (proposed()[0], "by cuDNN's heuristic")


def test_what_was_measured_goes_before_what_is_proposed() -> None:
    slow, fast = proposed()[1:3]
    with Store.open(None) as store:
        measured(store, slow.id, 90.0)
        measured(store, fast.id, 10.0)
        assert best(PROBLEM, H200, Policy(), store) == (fast, "by stored measurements")


def test_what_was_measured_and_is_wrong_is_not_chosen() -> None:
    wrong, right = proposed()[1:3]
    with Store.open(None) as store:
        measured(store, wrong.id, 1.0, error=0.5)
        assert best(PROBLEM, H200, Policy(), store)[0] == proposed()[0]
        measured(store, right.id, 10.0)
        assert best(PROBLEM, H200, Policy(), store)[0] == right


def test_policy_is_obeyed() -> None:
    exact = Policy(arithmetic=frozenset({Arithmetic.FP32}))
    with Store.open(None) as store:
        assert best(PROBLEM, H200, exact, store)[0].arithmetic is Arithmetic.FP32
        with pytest.raises(Refused, match=r"cuDNN cannot compute .* on NVIDIA H200: cudnn/engine-.* computes in"):
            best(PROBLEM, H200, Policy(arithmetic=frozenset({Arithmetic.FP64})), store)


def test_an_engine_is_found_by_its_whole_name_or_by_its_number() -> None:
    second = next(each for each in proposed() if each.algorithm != proposed()[0].algorithm)
    assert by_name(second.id, PROBLEM, H200, Policy()) == second
    assert by_name(f"cudnn/{second.algorithm}", PROBLEM, H200, Policy()) == second
    assert emit_c(PROBLEM, algorithm=second.id, device=H200).chosen == (second,)


@pytest.mark.parametrize("name", ["torch/default", "triton/implicit-gemm", "relayout(nhwc, cudnn/gemm)", "engine-48"])
def test_what_is_not_cudnns_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(BadInput, match="an algorithm or an engine of cuDNN, such as cudnn/gemm") as error:
        by_name(name, PROBLEM, H200, Policy())
    assert name in str(error.value)


RULED = ConvProblem.parse("mb2ic16ih10oc16kh3ph1")
EXACT = frozenset({Arithmetic.FP32})


@pytest.mark.parametrize(
    ("name", "problem", "policy", "said"),
    [
        ("cudnn/gemm[math=tf32]", RULED, Policy(arithmetic=EXACT), "computes in tf32, allowed are fp32"),
        ("cudnn/algo-0", RULED.asking(Direction.BACKWARD_DATA), Policy(deterministic=True), "is not deterministic"),
        ("cudnn/fft", RULED, Policy(max_workspace_bytes=8), "bytes of workspace, 8 are allowed"),
    ],
)
def test_what_is_named_and_breaks_what_was_asked_for_is_refused(
    name: str, problem: ConvProblem, policy: Policy, said: str
) -> None:
    with pytest.raises(BadInput) as error:
        by_name(name, problem, H200, policy)
    assert str(error.value).startswith(f"{name} ")
    assert said in str(error.value)
    assert by_name(name, problem, H200, Policy()).id == name, "a default refuses nothing that is named"


def test_the_default_workspace_refuses_nothing_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needy = replace(algorithm("gemm", RULED.key), workspace_bytes=1 << 40)
    monkeypatch.setattr(chosen, "named", lambda *_: needy)
    assert by_name("cudnn/gemm", RULED, H200, Policy()) == needy
    with pytest.raises(BadInput, match=r"needs 1,099,511,627,776 bytes of workspace, 1,024 are allowed"):
        by_name("cudnn/gemm", RULED, H200, Policy(max_workspace_bytes=1024))


UNTOLD = "cudnn/implicit-precomp-gemm[math=tf32]"
POINTWISE = ConvProblem.parse("mb1ic176ih7oc176kh1")


def test_where_workspace_is_limited_a_need_that_nobody_knows_is_refused() -> None:
    limited = Policy(max_workspace_bytes=1 << 40)
    assert by_name(UNTOLD, POINTWISE, H200, Policy()).workspace_bytes is None
    with pytest.raises(BadInput) as error:
        by_name(UNTOLD, POINTWISE, H200, limited)
    needs = "needs a workspace that is unknown until it is built, and 1,099,511,627,776 bytes are allowed"
    assert str(error.value) == f"{UNTOLD} {needs}"
    with Store.open(None) as store:
        asked = {"device": H200, "mode": Mode.HEURISTIC, "store": store}
        found = {policy: chosen.find(POINTWISE, policy=policy, **asked) for policy in (Policy(), limited)}
    listed = {policy: {each.id for each, _ in chosen._permitted(found[policy], policy)} for policy in found}
    assert UNTOLD in listed[Policy()]
    assert listed[limited]
    assert UNTOLD not in listed[limited]


def test_that_only_needs_that_nobody_knows_were_left_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    untold = by_name(UNTOLD, POINTWISE, H200, Policy())
    verdict = Verdict(Finding(untold), None, "was not measured", allowed=False, won=False)
    found = Findings(POINTWISE, H200, Policy(), Mode.HEURISTIC, (verdict,), (), None)
    monkeypatch.setattr(chosen, "find", lambda *_, **__: found)
    monkeypatch.setattr(listing, "of_family", lambda *_: [])
    with Store.open(None) as store:
        assert best(POINTWISE, H200, Policy(), store) == (untold, "as the first that supports it")
        with pytest.raises(
            Refused, match=r"math=tf32\] needs a workspace that is unknown until it is built, and 8 bytes"
        ):
            best(POINTWISE, H200, Policy(max_workspace_bytes=8), store)


def test_a_name_without_a_configuration_is_the_first_that_does_what_was_asked_for() -> None:
    """Of an engine's configurations, the names of which begin alike, some need less workspace than others."""
    problem = PROBLEM.asking(Direction.BACKWARD_WEIGHT)
    listed = [offer for offer in candidates(problem, H200, Policy()) if isinstance(offer, Candidate)]
    families: dict[str, list[Candidate]] = {}
    for each in listed:
        families.setdefault(each.algorithm, []).append(each)
    name, (first, *others) = next(
        (name, family)
        for name, family in families.items()
        if min(each.workspace_bytes or 0 for each in family) < (family[0].workspace_bytes or 0)
    )
    limit = min(each.workspace_bytes or 0 for each in others)
    assert by_name(f"cudnn/{name}", problem, H200, Policy()) == first
    found = by_name(f"cudnn/{name}", problem, H200, Policy(max_workspace_bytes=limit))
    assert found == next(each for each in others if (each.workspace_bytes or 0) <= limit)
    with pytest.raises(BadInput, match="bytes of workspace"):
        by_name(first.id, problem, H200, Policy(max_workspace_bytes=limit))


@pytest.mark.parametrize("name", ["auto", "cudnn/gemm", "cudnn/engine-0"])
def test_what_cannot_be_on_the_device_is_refused_with_the_numbers(name: str) -> None:
    text = "mb99999999999999ic64ih32oc64kh3ph1 dt:fp16 tag:nhwc"
    with pytest.raises(BadInput, match=r"its operands take 26,\d\d\d,\S+ GB, NVIDIA H200 has 1\d\d\.\d GB of memory"):
        emit_c(text, algorithm=name, device="h200")


def test_a_name_that_nothing_has_is_bad_input() -> None:
    with pytest.raises(BadInput, match="no algorithm here is called 'cudnn/engine'"):
        by_name("cudnn/engine", PROBLEM, H200, Policy())


def test_a_weight_that_python_would_pack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = algorithm("gemm", "mb2ic16ih10oc16kh3ph1 tag:x=nhwc,w=nchw,y=nhwc")
    monkeypatch.setattr(chosen, "named", lambda *_: candidate)
    with pytest.raises(BadInput, match=r"needs a weight that is dense in nhwc.* write w=nhwc"):
        by_name("cudnn/gemm", candidate.problem, H200, Policy())
    assert chosen._objection(algorithm("gemm", "mb2ic16ih10oc16kh3ph1 tag:nhwc")) is None
    assert chosen._objection(engine(f"{ENGINES[0]} tag:x=nhwc,w=nchw,y=nhwc")) is None


def test_a_gpu_has_to_be_named_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadInput, match="such as h200; PyTorch sees no GPU in this machine"):
        gpu(None)
    with pytest.raises(BadInput, match="got 'cpu'"):
        gpu("cpu")
    assert gpu("h200") == H200


def test_what_is_no_problem_is_bad_input() -> None:
    with pytest.raises(BadInput, match="takes a problem or its text, got 3"):
        emit_c(3, device="h200")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="`policy` must be a Policy"):
        emit_c(PROBLEM, device="h200", policy="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": 5}, "the name must have at most 40 letters, .* got 5"),
        ({"algorithm": None}, "such as cudnn/gemm or cudnn/engine-48, got None"),
        ({"algorithm": 7}, "such as cudnn/gemm or cudnn/engine-48, got 7"),
        ({"store": 5}, "`store` must be a Store, its path or URL, or None"),
        ({"device": 5}, "got 5"),
    ],
)
def test_what_is_of_another_kind_is_bad_input(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said) as error:
        emit_c(**{"problem": PROBLEM, "device": "h200", **arguments})
    assert "\n" not in str(error.value)


def test_a_proposal_that_has_no_plan_on_the_live_device_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live device's proposals are listed without their plans, since making all of them would take long."""
    first, second = proposed()[:2]
    monkeypatch.setattr(chosen, "_finalizes", lambda candidate, _: candidate != first)
    with Store.open(None) as store:
        assert best(PROBLEM, H200, Policy(), store)[0] == second


def test_whether_a_plan_can_be_made_is_asked_of_cudnn_where_the_device_is() -> None:
    here, nonsense = replace(H200, torch_name="cuda:0"), replace(proposed()[0], algorithm="engine-9999")
    assert chosen._finalizes(nonsense, H200), "at the listing it was asked already"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen, "finalized", lambda candidate, _: finalized(candidate, H200))
        assert chosen._finalizes(proposed()[0], here)
        assert not chosen._finalizes(nonsense, here)
