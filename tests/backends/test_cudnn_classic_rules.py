"""The rules for absent devices, held against what cuDNN 9.19 answered on a live H200."""

import gzip
import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from convwright.api.finding import find, why
from convwright.backends.cudnn.classic import listing as classic
from convwright.backends.cudnn.classic import operands as classic_operands
from convwright.backends.cudnn.classic.rules import RULES, answer
from convwright.core.candidate import Source
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.store.store import Store

# A sample of a run of `benchmarks/classic_answers.py`. TF32 is left out where its answer is that of strict fp32;
# null is a refusal of cuDNN's.
RECORD = Path(__file__).parent / "data" / "classic-answers-h200.jsonl.gz"
# A whole run with problems that were drawn when the rules stood: of its 87,700 answers none was other than they say,
# and no workspace larger.
LATER_RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "h200-classic-answers.jsonl.gz"
_EVERY = 4
# The least share of workspaces that are exact to the byte. What is not named here always is.
BOUNDED = {
    ("forward", "implicit-precomp-gemm"): 0.4,
    ("forward", "gemm"): 0.7,
    ("forward", "fft-tiling"): 0.9,
    ("backward_data", "algo-1"): 0.75,
    ("backward_data", "fft-tiling"): 0.9,
    ("backward_weight", "algo-1"): 0.01,
    ("backward_weight", "algo-3"): 0.01,
    ("backward_weight", "fft-tiling"): 0.9,
}
TENSOR_CORES = {"implicit-precomp-gemm", "algo-1"}


def live_answers():
    yield from answers_of(RECORD, every=1)


def answers_of(path, *, every):
    with gzip.open(path, "rt") as lines:
        next(lines)
        for record in map(json.loads, islice(lines, None, None, every)):
            problem = ConvProblem.parse(record["problem"])
            own = native_arithmetic(problem.dtype, tf32=False)
            for name, live in record["answers"].items():
                algorithm = name.removesuffix("[math=tf32]")
                yield problem, algorithm, own if algorithm == name else Arithmetic.TF32, live


@pytest.fixture(scope="module")
def compared():
    return [
        (problem, algorithm, arithmetic, live, answer(problem, algorithm, arithmetic))
        for problem, algorithm, arithmetic, live in live_answers()
    ]


def is_unknown(ruled):
    return isinstance(ruled, str) and ruled.startswith("unknown")


@pytest.mark.slow
def test_the_record_is_large_enough(compared):
    assert len({problem for problem, *_ in compared}) >= 2000


@pytest.mark.slow
def test_support_is_what_cudnn_answered(compared):
    wrong = [
        (algorithm, str(problem), live, ruled)
        for problem, algorithm, _, live, ruled in compared
        if not is_unknown(ruled) and isinstance(ruled, str) is isinstance(live, int)
    ]
    assert wrong == []


def test_a_record_that_was_taken_later_agrees():
    seen, wrong = 0, []
    for problem, algorithm, arithmetic, live in answers_of(LATER_RECORD, every=_EVERY):
        ruled = answer(problem, algorithm, arithmetic)
        seen += 1
        serves = isinstance(live, int)
        under = serves and isinstance(ruled, int) and ruled < live
        if not is_unknown(ruled) and (isinstance(ruled, str) is serves or under):
            wrong.append((algorithm, str(problem), live, ruled))
    assert seen > 20_000
    assert wrong == []


def test_no_workspace_is_larger_than_the_rules_say(compared):
    under = [
        (algorithm, str(problem), live, ruled)
        for problem, algorithm, _, live, ruled in compared
        if isinstance(live, int) and isinstance(ruled, int) and ruled < live
    ]
    assert under == []


def test_how_many_workspaces_are_exact(compared):
    exact, known = Counter(), Counter()
    for problem, algorithm, _, live, ruled in compared:
        if isinstance(live, int) and isinstance(ruled, int):
            known[problem.direction, algorithm] += 1
            exact[problem.direction, algorithm] += live == ruled
    assert len(known) == 17, "all but those that serve nothing"
    for direction, algorithm in known:
        least = BOUNDED.get((direction, algorithm), 1.0)
        assert exact[direction, algorithm] >= least * known[direction, algorithm], (direction, algorithm)


def test_what_stays_unknown(compared):
    unknown = [(problem, algorithm) for problem, algorithm, _, _, ruled in compared if is_unknown(ruled)]
    assert {algorithm for _, algorithm in unknown} == {"fft-tiling"}
    assert all({2} < set(problem.stride) and problem.direction is Direction.BACKWARD_DATA for problem, _ in unknown)
    assert len(unknown) < len(compared) / 5000
    for _, algorithm, arithmetic, _, ruled in compared:
        on_tensor_cores = arithmetic not in (Arithmetic.FP32, Arithmetic.FP64) and algorithm in TENSOR_CORES
        assert ruled is not None or on_tensor_cores


def test_each_algorithm_has_a_rule():
    assert {
        direction: [algorithm.name for algorithm in family.algorithms] for direction, family in classic.FAMILIES.items()
    } == {direction: list(rules) for direction, rules in RULES.items()}


def conv(x=(2, 8, 16, 16), w=(8, 8, 3, 3), **options):
    return ConvProblem.of(x, w, **{"padding": 1, **options})


BACKWARD_DATA, BACKWARD_WEIGHT = {"direction": "backward_data"}, {"direction": "backward_weight"}
STRIDED = TensorSpec((2, 8, 16, 16), conv().dtype, (4096, 256, 16, 1))
REFUSED = [
    (conv(), "direct", "computes no problem"),
    (conv(), "winograd", "computes no problem"),
    (conv((2, 8, 4, 4, 4), (8, 8, 3, 3, 3), layout="nhwc"), "implicit-gemm", "in 3 dimensions takes nchw, got nhwc"),
    (conv(layout="nhwc"), "gemm", "takes nchw, got nhwc"),
    (conv((2, 8, 4, 4, 4), (8, 8, 3, 3, 3)), "gemm", "takes 1 or 2 spatial dimensions, got 3"),
    (conv(dtype="fp64"), "fft", "computes in fp32 and fp16, got fp64"),
    (conv(stride=(2, 1)), "fft", "takes strides of 1, got (2, 1)"),
    (conv(dilation=(1, 2)), "fft", "takes dilations of 1, got (1, 2)"),
    (conv(padding=3), "fft", "takes padding below the filter's size, got (3, 3) for (3, 3) taps"),
    (conv((2, 8, 16), (8, 8, 3), padding=3), "fft", "takes padding below the filter's size, got (3,) for (3,) taps"),
    (conv((2, 8, 255, 8)), "fft", "up to 256 pixels a side, got 257"),
    (conv((2, 8, 255, 8), **BACKWARD_DATA), "fft", "up to 256 pixels a side, got 257"),
    (conv(layout={"x": "nhwc"}), "fft", "takes x dense in nchw, got strides (2048, 1, 128, 8)"),
    (conv((2, 8, 1, 1), (8, 8, 3, 3), **BACKWARD_WEIGHT), "fft", "padding below the size of dy, got (1, 1) for (1, 1)"),
    (conv((15, 920, 254, 254), (336, 920, 2, 2)), "fft", "needs 170,625,761,280 bytes for the spectra"),
    (conv((2, 8, 16, 16), (8, 8, 3, 3), dtype="fp64"), "fft-tiling", "in fp64 takes a filter that is 1 high or 1 wide"),
    (conv((2, 8, 64, 64), (8, 8, 33, 33)), "fft-tiling", "up to 32 a side if its shortest side is 33, got (33, 33)"),
    (conv(stride=3), "fft-tiling", "takes strides of up to 2, got (3, 3)"),
    (conv((2, 8, 16), (8, 8, 3), stride=2), "fft-tiling", "takes strides of up to 1, got (2,)"),
    (
        conv(stride=(2, 3), **BACKWARD_DATA),
        "fft-tiling",
        "unknown: cuDNN computes some problems with strides",
    ),
    (conv(stride=(2, 3), flip=True, **BACKWARD_DATA), "fft-tiling", "takes strides of up to 2, got (2, 3)"),
    (conv(**BACKWARD_WEIGHT), "fft-tiling", "takes dy that is 1 high or 1 wide, got (16, 16)"),
    (conv((2, 8, 300), (8, 8, 3), **BACKWARD_WEIGHT), "fft-tiling", "takes dy of up to 256 a side"),
    (conv(w=(8, 8, 3, 5)), "winograd-nonfused", "takes filters of 3 x 3 and 5 x 5, got (3, 5)"),
    (
        conv((1, 200, 1024, 1024), (1, 200, 3, 3)),
        "winograd-nonfused",
        "up to 2,147,483,647 elements of a group, got 7,",
    ),
    (conv(layout={"y": "nhwc"}, **BACKWARD_DATA), "winograd-nonfused", "takes dy dense in nchw"),
    (conv(layout={"x": "nhwc"}, **BACKWARD_WEIGHT), "winograd-nonfused", "takes x dense in nchw"),
    (conv(dtype="fp64", layout="nhwc", **BACKWARD_DATA), "algo-0", "in fp64 takes nchw, got nhwc"),
    (conv(layout={"y": "nhwc"}, **BACKWARD_DATA), "algo-1", "takes dy dense in nchw"),
    (conv(layout={"x": "nhwc"}, **BACKWARD_WEIGHT), "algo-0", "takes x dense in nchw"),
    (conv(dilation=2, **BACKWARD_WEIGHT), "algo-3", "takes dilations of 1, got (2, 2)"),
    (conv(padding=((0, 1), (0, 1))), "implicit-gemm", "needs equal padding on both sides"),
    (
        ConvProblem.of_specs(STRIDED, conv().w, stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1)),
        "implicit-gemm",
        "unknown: the rules cover dense operands only, got x with strides (4096, 256, 16, 1)",
    ),
    (conv((512, 64, 256, 256), (8, 64, 3, 3)), "gemm", "below 2^31 elements, got 2,147,483,648 in x"),
]


@pytest.mark.parametrize(("problem", "algorithm", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_refusal_names_the_value_that_is_wrong(problem, algorithm, reason):
    refused = answer(problem, algorithm, native_arithmetic(problem.dtype, tf32=False))
    assert isinstance(refused, str)
    assert reason in refused


def test_one_tap_lies_the_same_in_every_dilation():
    """Only the transforms of backward data see that."""
    problem = conv(w=(8, 8, 1, 1), padding=0, dilation=2)
    assert isinstance(answer(problem.asking(Direction.BACKWARD_DATA), "fft", Arithmetic.FP32), int)
    assert answer(problem, "fft", Arithmetic.FP32) == "takes dilations of 1, got (2, 2)"


def test_spectra_between_the_record_and_its_first_refusal_are_unknown():
    problem = conv((1, 700, 254, 254), (400, 700, 2, 2))
    assert "unknown: needs 14" in str(answer(problem, "fft", Arithmetic.FP32))


def test_the_workspace_of_split_sums_is_unknown():
    assert answer(conv(), "implicit-precomp-gemm", Arithmetic.FP32) == 1024
    assert answer(conv(), "implicit-precomp-gemm", Arithmetic.TF32) is None
    assert answer(conv(dtype="fp16", **BACKWARD_WEIGHT), "algo-1", Arithmetic.FP16_ACC32) is None


def test_who_computes_an_epilogue():
    fused = conv(epilogue="bias+relu")
    assert classic_operands.epilogue_objection(fused, fuses=True) is None
    assert "`unfuse`" in (classic_operands.epilogue_objection(fused, fuses=False) or "")


def listed(device):
    found = find("mb32ic64ih28oc64kh3ph1", device=device, mode="heuristic", store=Store.open(None))
    rows = [verdict.finding.candidate for verdict in found.verdicts]
    return {row.id: row for row in rows}, {refusal.id: refusal.reason for refusal in found.refusals}


def test_find_lists_what_the_rules_say():
    rows, refused = listed("h200")
    assert (rows["cudnn/fft"].source, rows["cudnn/fft"].workspace_bytes) == (Source.RULE, 53_624_832)
    assert rows["cudnn/winograd-nonfused"].source is Source.RULE
    assert "computes no problem" in refused["cudnn/direct"]


def test_a_bound_is_told_from_an_exact_figure():
    rows, _ = listed("h200")
    told = {name: rows[f"cudnn/{name}"].workspace_is_bound for name in ("fft", "implicit-gemm", "gemm", "fft-tiling")}
    assert told == {"fft": False, "implicit-gemm": False, "gemm": False, "fft-tiling": True}
    assert rows["cudnn/gemm"].workspace_bytes == 0, "at most nothing is exact"
    reason = why("mb32ic64ih28oc64kh3ph1", "cudnn/fft-tiling", "h200").sentence
    assert reason == f"it is a candidate, with at most {rows['cudnn/fft-tiling'].workspace_bytes:,} bytes of workspace"
    found = find(
        "mb32ic64ih28oc64kh3ph1",
        device="h200",
        mode="heuristic",
        store=Store.open(None),
        policy=Policy(max_workspace_bytes=0),
    )
    refused = {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}
    assert refused["cudnn/fft"] == "needs 53,624,832 bytes of workspace, 0 are allowed"
    assert refused["cudnn/fft-tiling"].startswith("may need ")
    told = {row["id"]: row["workspace_is_bound"] for row in found.to_json()["candidates"]}
    assert (told["cudnn/fft"], told["cudnn/fft-tiling"]) == (False, True)


def test_find_says_unknown_where_the_rules_were_not_verified():
    rows, refused = listed("a100")
    assert not any(f"cudnn/{name}" in rows for name in RULES[Direction.FORWARD])
    assert refused["cudnn/gemm"] == "unknown on sm_80: the rules for the classic API are verified only on sm_90"
