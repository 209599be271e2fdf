"""cuDNN's graph API on a live GPU: the planned list is the live one, and what is listed computes the right thing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.plan import GraphPlan
from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction, Role
from convwright.core.dtype import Arithmetic
from convwright.core.error_rule import error_objection
from convwright.core.finding import KindError
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile_for
from convwright.errors import BackendError, BadInput
from convwright.measuring.checking.error import ErrorCheck
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tensors import activate, empty
from convwright.tuning.find import find
from convwright.tuning.trials.trial import Bench, Trial

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
]

DIRECTIONS = ("backward_data", "backward_weight")
COMPARED = [
    *(f"mb32ic256ih14oc256kh3ph1 dt:{dt} tag:{tag}" for dt, tag in (("fp16", "nhwc"), ("fp32", "nchw"))),
    *(f"mb32ic256ih14oc256kh3ph1 dt:fp16 tag:nhwc dir:{direction}" for direction in DIRECTIONS),
    *(f"mb32ic256ih14oc256kh3ph1 dir:{direction}" for direction in DIRECTIONS),
    "mb32ic256ih14oc256kh3ph1 dt:fp16 tag:nhwc ep:bias+relu",
    "mb32ic256ih14oc256kh3ph1 ep:bias+relu",
    "mb32ic256ih14oc256kh3ph1 dt:bf16 tag:nhwc ep:residual+bias+relu",
    "mb8ic3ih224oc64kh7sh2ph3 dt:fp16 tag:nhwc",
    "mb32ic256ih14oc1024kh1 dt:fp16 tag:nhwc",
    "g128mb2ic128ih14oc128kh3ph1",
    "mb4ic64iw100oc64kw3pw1",
    *(f"mb32ic256ih14oc256kh3ph1 dt:int8:int8:{stored} tag:nhwc" for stored in ("fp32", "int8")),
    "mb32ic256ih14oc256kh3ph1 dt:int8:int8:int8 tag:nhwc ep:residual+bias+relu",
]
COMPUTED = [
    *(f"mb2ic16ih12oc24kh3ph1 dt:{dt} tag:nhwc" for dt in ("fp16", "bf16", "fp32")),
    *(f"mb2ic16ih12oc24kh3ph1 dt:{dt}" for dt in ("fp16", "fp32", "fp64")),
    *(f"mb2ic16ih12oc24kh3ph1 dir:{direction}" for direction in DIRECTIONS),
    *(f"mb2ic16ih12oc24kh3ph1 dt:fp16 tag:nhwc dir:{direction}" for direction in DIRECTIONS),
    *(f"mb2ic16ih12oc24kh3ph1 dt:fp64 dir:{direction}" for direction in DIRECTIONS),
    *(
        f"mb2ic16ih12oc24kh3ph1 dt:{dt} tag:{tag} ep:{epilogue}"
        for dt, tag in (("fp16", "nhwc"), ("fp32", "nchw"))
        for epilogue in ("bias", "relu", "residual", "bias+relu", "residual+bias+relu")
    ),
    "mb2ic16ih12oc24kh3ph1 dt:fp64 ep:residual+bias+relu",
    "mb3ic7ih11iw9oc5kh3kw2sh2sw1ph1pw0",
    "mb3ic7ih11iw9oc5kh3kw2sh2sw1ph1pw0 dt:fp16 tag:nhwc",
    "mb2ic8ih15oc8kh3dh1ph2 dir:backward_weight",
    "mb2ic8ih13oc8kh3sh2ph1 dir:backward_data",
    "mb1ic8ih9oc8oh9kh3ph0",
    "mb2ic16ih9oc32kh1 dt:fp16 tag:nhwc",
    "mb2ic16iw50oc16kw5pw2",
    "mb2ic16iw50oc16kw5pw2 dt:fp16 tag:nhwc ep:bias+relu",
    "mb2ic16iw50oc16kw5pw2 dir:backward_weight",
    "mb1ic8id6ih7iw8oc8kd3kh3kw3pd1ph1pw1",
    "mb1ic8id6ih7iw8oc8kd3kh3kw3pd1ph1pw1 dt:fp16 tag:nhwc dir:backward_data",
    "g4mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc",
    "g16mb2ic16ih10oc16kh3ph1",
    "g16mb2ic16ih10oc16kh3ph1 dir:backward_weight",
    "mb2ic16ih10oc16kh3ph1 flip:1",
    "mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc flip:1",
    "mb2ic16ih10oc16kh3ph1 dt:fp16 tag:x=nhwc@2,w=nhwc,y=nhwc",
]
# Relative L2 on normal data, a few times what each arithmetic gives.
LARGEST_ERROR = {
    Arithmetic.FP64: 1e-13,
    Arithmetic.FP32: 3e-6,
    Arithmetic.TF32: 2e-3,
    Arithmetic.FP16_ACC32: 2e-3,
    Arithmetic.BF16_ACC32: 1.5e-2,
}


def offers(text: str, device: DeviceFacts) -> list[Offer]:
    return list(graph.candidates(ConvProblem.parse(text), device, Policy()))


def supported(text: str, device: DeviceFacts) -> list[Candidate]:
    return [offer for offer in offers(text, device) if isinstance(offer, Candidate)]


@pytest.mark.parametrize("text", COMPARED)
def test_the_planned_list_is_the_live_one(text: str, live: DeviceFacts) -> None:
    elsewhere = profile_for(live.name)
    if elsewhere is None:
        pytest.skip(f"there is no profile of {live.name}")
    planned = {candidate.id: candidate for candidate in supported(text, elsewhere)}
    here = {candidate.id: candidate for candidate in supported(text, live)}
    assert planned
    assert [name for name in here if name in planned] == list(planned), "the same engines and knobs in the same order"
    assert all(here[name].compiles for name in here.keys() - planned.keys()), "only a driver can compile"
    for name, candidate in planned.items():
        # With clusters (knob 28) the workspace depends on what the driver answers, which a record cannot. An engine
        # that is asked for by its number alone may turn that knob by itself.
        if "k28" in dict(candidate.config) or not candidate.config:
            candidate = replace(candidate, workspace_bytes=here[name].workspace_bytes)
        assert here[name] == candidate


def operands(problem: ConvProblem, *, misalign: bool = False) -> dict[Role, Tensor]:
    """Every input of ``problem`` on the GPU, from normal data, exactly as its specs say."""
    inputs = {}
    generator = torch.Generator("cuda").manual_seed(0)
    for role, spec in problem.operands.items():
        if role is problem.direction.output:
            continue
        odd = misalign and role is Role.BIAS
        late = 1 if odd else spec.alignment // spec.dtype.nbytes if spec.alignment < 16 else 0
        span = spec.span_bytes // spec.dtype.nbytes
        buffer = torch.empty(span + late, dtype=empty(spec, "cpu").dtype, device="cuda")[late:]
        inputs[role] = buffer.as_strided(spec.shape, spec.strides, buffer.storage_offset())
        inputs[role].copy_(torch.randn(spec.shape, device="cuda", generator=generator, dtype=torch.float64))
    return inputs


def reference(problem: ConvProblem, inputs: dict[Role, Tensor]) -> Tensor:
    """The answer in float64, on the CPU."""
    exact = {role: tensor.double().cpu() for role, tensor in inputs.items()}
    x = exact.get(Role.X, torch.zeros(problem.x.shape, dtype=torch.float64)).requires_grad_()
    w = exact.get(Role.W, torch.zeros(problem.w.shape, dtype=torch.float64)).requires_grad_()
    padding = [side for pair in reversed(problem.padding) for side in pair]
    taps = w.flip(tuple(range(2, w.dim()))) if problem.flip else w
    convolve = (F.conv1d, F.conv2d, F.conv3d)[problem.rank - 1]
    y = convolve(
        F.pad(x, padding), taps, stride=problem.stride, dilation=problem.dilation, groups=problem.groups
    )  # fmt: skip
    if problem.direction is not Direction.FORWARD:
        wanted = x if problem.direction is Direction.BACKWARD_DATA else w
        return torch.autograd.grad(y, wanted, exact[Role.DY])[0]
    if Role.RESIDUAL in exact:
        y = y + exact[Role.RESIDUAL]
    if Role.BIAS in exact:
        y = y + exact[Role.BIAS].view(-1, *(1,) * problem.rank)
    return activate(y, problem.epilogue.activation).detach()


def run(plan: Plan, problem: ConvProblem, inputs: dict[Role, Tensor]) -> Tensor:
    """The plan's answer; where it leaves anything of the output or trusts the workspace, NaN comes out."""
    first, second = (inputs[role] for role in problem.direction.operands)
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        second = plan.prepare(second)
    out = empty(problem.output, "cuda").fill_(math.nan)
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8, device="cuda")
    result = plan(first, second, inputs.get(Role.BIAS), inputs.get(Role.RESIDUAL), out, workspace)
    assert result is out
    return out


@pytest.mark.parametrize("text", COMPUTED)
def test_every_candidate_computes_the_convolution(text: str, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(text)
    inputs = operands(problem)
    exact = reference(problem, inputs)
    candidates = supported(text, live)
    assert candidates
    wrong = {}
    for candidate in candidates:
        try:
            plan = graph.build(candidate, live)
            assert plan.workspace_bytes == candidate.workspace_bytes
            got = run(plan, problem, inputs)
            torch.cuda.synchronize()
        except BackendError as failure:
            wrong[candidate.id] = str(failure)
            continue
        error = ((got.double().cpu() - exact).norm() / exact.norm()).item()
        if not error <= LARGEST_ERROR[candidate.arithmetic]:
            wrong[candidate.id] = f"{candidate.arithmetic}: {error:.2e}"
        elif candidate.deterministic and not torch.equal(run(plan, problem, inputs), got):
            wrong[candidate.id] = "calls itself deterministic and is not"
    # In 9.19 the engine that needs a driver, in backward directions, depends on what lies around its operands.
    assert [c.id for c in candidates if c.id in wrong and not found_out(c, live)] == []
    assert len(wrong) <= 2, wrong


@pytest.mark.parametrize("activation", ["silu", "gelu"])
@pytest.mark.parametrize("form", [f"{form} ep:bias" for form in ("dt:fp16 tag:nhwc", "dt:bf16 tag:nhwc", "tag:nhwc")])
def test_what_is_compiled_fuses_other_activations_and_is_read_as_it_was_written(
    form: str, activation: str, live: DeviceFacts
) -> None:
    problem = ConvProblem.parse(f"mb2ic32ih12oc64kh3ph1 {form}+{activation}")
    inputs = operands(problem)
    exact, candidates = reference(problem, inputs), supported(problem.key, live)
    assert all(candidate.compiles for candidate in candidates)
    for candidate in candidates[:2]:
        plan = graph.build(candidate, live)
        assert isinstance(plan, GraphPlan)
        got = run(plan, problem, inputs)
        assert ((got.double().cpu() - exact).norm() / exact.norm()).item() <= LARGEST_ERROR[candidate.arithmetic]
        text = graph.written(plan)
        assert text is not None
        again = graph.read(candidate, live, text)
        assert again.workspace_bytes == plan.workspace_bytes
        assert torch.equal(run(again, problem, inputs), got)
        with pytest.raises(BackendError):
            graph.read(candidate, live, text.replace('"cudnnVersion":', '"cudnnVersion":1'))


def test_an_engine_that_is_wrong_is_reported_as_wrong(live: DeviceFacts) -> None:
    """Wrong in 9.19: found by `benchmarks/conformance.py`."""
    if live.architecture != "sm_90" or torch.backends.cudnn.version() != 91900:
        pytest.skip("this is an engine of cuDNN 9.19 for sm_90")
    text = "g1mb1ic1oc64ih17iw40oh9ow20kh3kw3sh2sw2ph1pw1 dir:backward_weight tag:x=nchw,w=nchw,y=nhwc"
    (candidate,) = (each for each in supported(text, live) if each.id == "cudnn/engine-69")
    problem = candidate.problem
    (error,) = ErrorCheck(problem, "cuda", kinds=["normal"]).errors(
        Trial(candidate, Bench(problem, live, Mode.FULL, seed=0)).run
    )
    own = KindError("normal", LARGEST_ERROR[candidate.arithmetic] / 2, 10.0)
    assert error_objection(problem, (error,), (own,), Policy()) is not None


def found_out(candidate: Candidate, live: DeviceFacts) -> bool:
    """Whether a search would see that the candidate is wrong."""
    (error,) = ErrorCheck(candidate.problem, "cuda", kinds=["normal"]).errors(
        Trial(candidate, Bench(candidate.problem, live, Mode.FULL, seed=0)).run
    )
    return not error.relative_l2 < LARGEST_ERROR[candidate.arithmetic]


def test_an_engine_that_computes_wrong_is_found_out_and_not_chosen(live: DeviceFacts) -> None:
    """In 9.19 a TF32 engine reads a batch with gaps as if there were none."""
    problem = ConvProblem.parse("mb2ic16ih10oc16kh3ph1 tag:x=3200/100/10/1,w=nchw,y=nchw")
    with Store.open(None) as store:
        found = find(problem, live, Policy(), mode=Mode.FULL, store=store, budget_us=2e6)
    measured = [v for v in found.verdicts if v.finding.measurement and v.finding.measurement.errors]
    wrong = [v for v in measured if v.finding.measurement and not v.finding.measurement.errors[0].relative_l2 < 0.1]
    assert not [verdict for verdict in wrong if verdict.allowed]
    assert found.choice is not None


def test_a_misaligned_bias_never_reaches_the_gpu(live: DeviceFacts) -> None:
    text = "mb2ic16ih12oc24kh3ph1 dt:fp16 tag:nhwc ep:bias+relu"
    problem = ConvProblem.parse(text)
    inputs = operands(problem, misalign=True)
    assert inputs[Role.BIAS].data_ptr() % 4
    for candidate in supported(text, live):
        with pytest.raises(BadInput, match="aligned"):
            run(graph.build(candidate, live), problem, inputs)


def test_calls_can_be_captured_on_a_stream_of_their_own(live: DeviceFacts) -> None:
    text = "mb2ic16ih12oc24kh3ph1 dt:fp16 tag:nhwc"
    problem = ConvProblem.parse(text)
    inputs = operands(problem)
    x, w = inputs[Role.X], inputs[Role.W]
    for candidate in supported(text, live)[:5]:
        plan = graph.build(candidate, live)
        expected = plan(x, w)
        out = empty(problem.y, "cuda").fill_(math.nan)
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            plan(x, w, out=out, workspace=workspace)
        assert out.isnan().all()
        captured.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected), candidate.id


def test_many_buffers_in_turn_are_not_mixed_up(live: DeviceFacts) -> None:
    text = "mb2ic16ih12oc24kh3ph1"
    problem = ConvProblem.parse(text)
    inputs = operands(problem)
    plan = graph.build(supported(text, live)[0], live)
    w = inputs[Role.W]
    images = [inputs[Role.X] * scale for scale in range(1, 100)]
    first = [plan(x, w) for x in images]
    again = [plan(x, w) for x in images]
    exact = reference(problem, inputs)
    for scale, (one, other) in enumerate(zip(first, again, strict=True), start=1):
        assert torch.equal(one, other)
        assert (one.double().cpu() / scale - exact).norm() / exact.norm() < LARGEST_ERROR[Arithmetic.TF32]
