"""Expressions, copies, products, pooling and resizes on a live GPU: right beside PyTorch, in a CUDA graph, found."""

from __future__ import annotations

import pytest
import torch

import convwright as cw
from convwright.core.binding import bind
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.error_rule import absolute_objection
from convwright.core.finding import KindError
from convwright.core.kinds.operators import OPERATORS
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.of_kind import whole_reference
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tensors import empty, spoil_
from convwright.tuning import listing
from convwright.tuning.find import find
from convwright.tuning.search import baseline_of, resolved
from gpu.right import check, check_beside

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
]

POINTWISE = [
    'pointwise "relu(a + b)" mb8ic64ih28',
    'pointwise "relu(a + b)" mb8ic63ih27 dt:fp16 tag:nhwc',
    'pointwise "silu(a * s + b) + c" mb8ic64ih28 dt:bf16 s:c,fp32 b:c c:nhwc',
    'pointwise "a * sigmoid(g)" mb8ic64ih28 g:nc dt:fp16',
    'pointwise "where(a > 0, a, 0.1 * a) / 3" 1000003',
    'pointwise "tanh(a) + exp(b) - erf(a) * rsqrt(abs(b) + 1)" mb4ic32ih30',
    'pointwise "fp16(a + b) * hardswish(b)" mb4ic32ih30 dt:fp32',
]
SOFTMAX = "exp(a - max(a)) / sum(exp(a - max(a)))"
LAYER_NORM = "(a - mean(a)) * rsqrt(mean((a - mean(a)) * (a - mean(a))) + 1e-5) * g + b"
ROWS = [
    f'pointwise "{SOFTMAX}" mb512ic1000',
    f'pointwise "{SOFTMAX}" mb8ic21ih65 row:c dt:fp16',
    f'pointwise "{SOFTMAX}" mb8ic64ih28 row:c tag:nhwc dt:bf16',
    f'pointwise "{LAYER_NORM}" mb1000ic768 g:c b:c dt:fp16',
    f'pointwise "{LAYER_NORM}" mb8ic96ih28 row:c g:c b:c',
    f'pointwise "{LAYER_NORM}" 8x32x4x784 row:hw g:ch b:ch dt:fp16',
    'pointwise "a * rsqrt(mean(a * a) + 1e-6) * g" mb100ic4096 g:c dt:bf16',
    'pointwise "a / maximum(sqrt(sum(a * a)), 1e-12)" mb33ic129ih7 row:c',
    'pointwise "mean(a)" mb32ic512ih7 row:hw y:nc dt:fp16',
    'pointwise "mean(a)" mb32ic512ih7 row:hw y:nc dt:fp16 tag:nhwc',
    'pointwise "max(a)" 64x32768 y:64x1',
    f'pointwise "relu({LAYER_NORM})" mb8ic64ih28 row:chw groups:8 g:c b:c dt:fp16 tag:nhwc',
    f'pointwise "silu({LAYER_NORM})" mb1ic64ih128 row:chw groups:16 g:c b:c dt:bf16',
    f'pointwise "{LAYER_NORM}" mb1ic3ih300 row:chw g:c b:c tag:nhwc',
    'pointwise "max(a)" mb2ic8ih300 row:hw y:nc',
    'pointwise "a - mean(a)" mb64ic16ih200 row:hw dt:fp16',
]
COPIES = [
    "copy mb8ic64ih28 nchw->nhwc",
    "copy mb8ic64ih28 nhwc->nchw dt:fp16",
    "copy mb8ic3ih224 nchw->nhwc dt:fp32->fp16 pad:c=0:1",
    "copy mb8ic63ih29 nchw->nhwc dt:fp16->bf16 pad:h=1:2,w=3:0 slice:c=3:60",
    "copy mb8ic64ih28 nchw->nhwc dt:fp8_e4m3",
    "copy mb2ic16id5ih7iw9 nchw->nhwc dt:fp64",
    "copy 100x200 200/1->1/100",
]
LINEAR = [
    "linear mb32ic512oc1000 ep:bias+relu",
    "linear mb128ic768oc3072 dt:fp16 ep:bias+gelu",
    "linear mb33ic65oc47 dt:bf16 ep:residual+bias",
    "linear mb64ic256oc256 dt:fp16 tag:x=col,w=row,y=row",
]

POOLS = [
    "pool max mb8ic64ih112 kh3sh2ph1",
    "pool max mb8ic64ih112 kh3sh2ph1 dt:fp16 tag:nhwc",
    "pool max mb8ic64ih56 kh3sh2ph1 dt:bf16 tag:x=401408/1/7168/128,y=100352/1/3584/128",
    "pool max mb2ic19id9ih30 kd3sd2pd1dd1 dt:fp16 tag:nhwc",
    "pool max mb8ic16iw1003 kw100sw7pw50 ceil:1",
    "pool avg mb8ic64ih56 kh2 tag:nhwc",
    "pool avg mb8ic63ih30 kh3sh2ph1 ceil:1 include_pad:0 dt:fp16",
    "pool avg mb8ic64ih28 kh3sh1ph1 dt:bf16 tag:nhwc",
    "pool avg mb8ic512ih7 kh7 dt:fp16",
    "pool avg mb2ic16id8ih12 kd2 divisor:5 tag:x=nchw,y=nhwc",
]
RESIZES = [
    "resize nearest mb8ic64ih28 oh56",
    "resize nearest mb8ic63ih27 oh45 scale:1.7 dt:fp16 tag:nhwc",
    "resize nearest mb2ic16id9ih17 od5oh30 dt:bf16",
    "resize linear mb8ic64ih28 oh56 dt:fp16 tag:nhwc",
    "resize linear mb8ic21ih33iw65 oh129ow257 align:corners",
    "resize linear mb8ic64ih28 oh45 scale:1.63 dt:bf16",
    "resize linear mb2ic16id9ih17 od18oh11 tag:nhwc",
    "resize linear mb8ic64iw1000 ow1999",
    "resize linear mb8ic64ih28iw30 oh56ow30 tag:x=nchw,y=nhwc",
]


def candidates(problem: Problem, device: DeviceFacts) -> list[Candidate]:
    """All that the backends offer, and the first of each backend inside each rewrite."""
    policy = resolved(Policy(), problem, device)
    offers = [*listing.direct(problem, device, policy), *listing.rewritten(problem, device, policy)]
    return [each for each in listing.candidates(offers) if listing.objection(each, policy) is None]


@pytest.mark.parametrize("text", [*POINTWISE, *ROWS, *COPIES, *LINEAR, *POOLS, *RESIZES])
def test_every_candidate_is_right_by_itself(text: str, live: DeviceFacts) -> None:
    found = candidates(parse(text), live)
    assert {each.leaf.backend for each in found} >= {"torch", "triton"}
    for candidate in found:
        if candidate.backend != "torch":  # whose eager functions round at each step
            check(candidate)


@pytest.mark.parametrize("text", [*POINTWISE, *ROWS, *COPIES, *POOLS, *RESIZES])
def test_generated_kernels_err_no_more_than_pytorch(text: str, live: DeviceFacts) -> None:
    problem = parse(text)
    found = candidates(problem, live)
    own = baseline_of(found, resolved(Policy(), problem, live))
    assert own is not None
    check_beside(own, (each for each in found if each.backend == "triton"))


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("operator", [each for each in OPERATORS if not OPERATORS[each].compares])
def test_every_operator_errs_no_more_than_pytorch(operator: str, dtype: str, live: DeviceFacts) -> None:
    signs = {"add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "neg": "-a", "where": "where(a < b, a, b)"}
    arity = OPERATORS[operator].arity
    text = signs.get(operator, f"{operator}({', '.join('ab'[:arity])})")
    problem = parse(f'pointwise "{text}" mb4ic32ih30 dt:{dtype}')
    found = candidates(problem, live)
    own = baseline_of(found, resolved(Policy(), problem, live))
    assert own is not None
    check_beside(own, [each for each in found if each.backend == "triton"][:1])


@pytest.mark.parametrize(
    "text", [POINTWISE[2], ROWS[3], ROWS[12], COPIES[2], LINEAR[0], POOLS[1], POOLS[6], *RESIZES[1:4:2]]
)
def test_a_bound_plan_is_captured_in_a_cuda_graph(text: str, live: DeviceFacts) -> None:
    problem = parse(text)
    given = operands(problem, Kind.NORMAL, "cuda")
    for candidate in {each.leaf.backend: each for each in candidates(problem, live)}.values():
        plan = listing.build(candidate, live)
        out = spoil_(empty(problem.output, "cuda"))
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
        call = bind(plan, {**given, problem.outputs[-1]: out}, workspace)
        torch.cuda.synchronize()  # what makes the operands, and spoils `out`, runs on another stream
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            call()
        side.synchronize()
        right = out.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        spoil_(out)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, right), candidate.id


@pytest.mark.parametrize("text", [POINTWISE[1], ROWS[3], COPIES[2], LINEAR[1], POOLS[1]])
@pytest.mark.parametrize("algorithm", ["auto", "triton/elementwise"])
def test_a_public_plan_is_bound_and_captured(text: str, algorithm: str) -> None:
    if algorithm != "auto":
        algorithm = {"linear": "as-conv(torch/default)", "pool": "triton/pool"}.get(text.split()[0], algorithm)
    ready = cw.plan(text, algorithm=algorithm)
    given = operands(ready.problem, Kind.NORMAL, "cuda")
    y = spoil_(empty(ready.problem.output, "cuda"))
    workspace = torch.empty(ready.workspace_bytes, dtype=torch.uint8, device="cuda")
    call = ready.bind(**given, y=y, workspace=workspace)
    torch.cuda.synchronize()  # what makes the operands, and spoils `y`, runs on another stream
    with torch.cuda.stream(side := torch.cuda.Stream()):
        assert call() is y
    side.synchronize()
    right = y.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    spoil_(y)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, right)
    reference = whole_reference(ready.problem, given)
    error = KindError("normal", *errors_of(y, reference))
    if ready.candidate.leaf.backend == "triton":
        assert absolute_objection(ready.problem, ready.candidate.arithmetic, [error], Policy()) is None
    assert error.relative_l2 < 0.01


@pytest.mark.parametrize("text", [POINTWISE[2], ROWS[0], COPIES[0], LINEAR[1], POOLS[0], RESIZES[3]])
def test_a_search_finds_and_remembers(text: str, live: DeviceFacts) -> None:
    problem = parse(text)
    with Store.open(None) as store:
        found = find(problem, live, Policy(), mode=Mode.FULL, store=store, budget_us=8e6)
        assert found.choice is not None
        assert found.baseline is not None
        again = find(problem, live, Policy(), mode=Mode.FULL, store=store, budget_us=8e6)
    assert again.choice is not None
    assert again.choice.remembered
    assert again.choice.candidate.id == found.choice.candidate.id


@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    "sizes", [(30, 41, 1.37), (100, 33, None), (1023, 700, None), (333, 1000, None), (41, 16, 0.4)]
)
def test_the_nearest_pixels_are_pytorchs(sizes: tuple[int, int, float | None], tag: str, live: DeviceFacts) -> None:
    """Rounding decides which they are."""
    size, out, scale = sizes
    problem = parse(f"resize nearest ic4ih{size}iw3 oh{out}ow3 tag:{tag}" + f" scale:h={scale}" * (scale is not None))
    given = operands(problem, Kind.NORMAL, "cuda")
    own = torch.nn.functional.interpolate(given["x"], size=(out, 3))
    if scale is not None:
        own = torch.nn.functional.interpolate(given["x"], scale_factor=(scale, 1.0))
    for candidate in candidates(problem, live):
        assert torch.equal(bind(listing.build(candidate, live), given)(), own), candidate.id


@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
def test_infinities_between_pixels_are_pytorchs(tag: str, live: DeviceFacts) -> None:
    for text in ("resize linear mb1ic4ih5 oh9", "resize linear mb1ic4ih9 oh17 align:corners"):
        problem = parse(f"{text} tag:{tag}")
        for kind in (Kind.INFINITY, Kind.NAN):
            given = operands(problem, kind, "cuda")
            found = whole_reference(problem, given)
            for candidate in candidates(problem, live):
                assert errors_of(bind(listing.build(candidate, live), given)(), found)[1] < 2, candidate.id
