"""Why an algorithm cannot serve: cuDNN's own conditions, the refusals that are listed, and processes that die."""

from __future__ import annotations

import json
import re
import sys

import pytest

import convwright as cw
from convwright.api import why as module
from convwright.backends.cudnn.library import Missing, load
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError, BadInput
from convwright.tuning import workers

needs_cudnn = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

RESNET = "mb32ic256ih14oc256kh3ph1"
HALF = f"{RESNET} dt:fp16 tag:nhwc"


@pytest.mark.first_cases(1)
@needs_cudnn
@pytest.mark.parametrize(
    ("text", "engine", "device", "cause"),
    [
        (RESNET, "engine-20", "h200", "Engine 20 is not enabled for CONV_FORWARD"),
        (HALF, "cudnn/engine-5", "h200", "wDesc->dimA[1] != 1"),
        (HALF, "engine-57", "h200", "conv.c > specs.c_value"),
        (RESNET, "engine-48[k2=99]", "h200", "!isValidSetting(name, c)"),
        (f"{HALF} dir:backward_weight", "engine-16", "a100", "dwDesc->dimA[1] != 1"),
    ],
)
def test_an_engine_is_refused_in_cudnns_own_words(text: str, engine: str, device: str, cause: str) -> None:
    reason = cw.why(text, engine, device)
    assert not reason.serves
    assert cause in reason.causes
    assert reason.sentence.startswith("cuDNN does not support this")
    assert reason.algorithm == f"cudnn/{engine.removeprefix('cudnn/')}"
    first, *lines = str(reason).splitlines()
    assert first.startswith(f"{reason.algorithm} cannot compute {reason.problem.key} on NVIDIA ")
    assert [line.strip() for line in lines] == list(reason.causes)


@pytest.mark.slow
@needs_cudnn
def test_an_engine_of_another_architecture_has_no_condition() -> None:
    reason = cw.why(RESNET, "engine-67", "t4")
    assert reason.causes == ()
    assert reason.sentence == ("cuDNN does not support this architecture (status 3007); its log names no condition")


@needs_cudnn
def test_an_engine_that_serves_says_so() -> None:
    reason = cw.why(RESNET, "cudnn/engine-48[k2=2,k13=2]", "h200")
    assert reason.serves
    assert "is ready to run with " in str(reason)
    assert json.loads(json.dumps(reason.to_json()))["causes"] == []


@pytest.mark.slow
@needs_cudnn
def test_inside_a_rewrite_it_is_asked_for_what_is_left() -> None:
    padded = HALF.replace("ic256", "ic250")
    reason = cw.why(padded, "pad-c(8, cudnn/engine-5)", "h200")
    assert not reason.serves
    assert reason.problem == ConvProblem.parse(padded)
    assert "wDesc->dimA[1] != 1" in reason.causes
    left = ConvProblem.parse(HALF).key
    assert reason.sentence.startswith(
        f"cudnn/engine-5, for which {left} is left, cannot compute that: cuDNN does not support this"
    )


@pytest.mark.parametrize(
    ("text", "algorithm", "serves", "sentence"),
    [
        (
            "ic6ih8oc6kh3sh2",
            "pad-c(8, reference/winograd)",
            False,
            "is left, cannot compute that: stride (2, 2): ",
        ),
        ("ic6ih9oc6kh3", "pad-c(8, reference/winograd)", True, "can compute that: it is a candidate as reference/wino"),
        ("ic6ih9oc6kh3", "pad-c(8, reference/gemm)", True, "it is a candidate, with "),
        ("mb4ic6ih8oc6kh3sh2", "split-batch(2, pad-c(8, reference/winograd))", False, "cannot compute that: stride (2"),
        ("ic8ih9oc8kh3", "pad-c(8, reference/gemm)", False, "8 input and 8 output channels per group are multiples"),
    ],
)
def test_inside_rewrites_it_is_the_inner_reason(text: str, algorithm: str, serves: bool, sentence: str) -> None:
    reason = cw.why(text, algorithm, "cpu")
    assert (reason.serves, reason.algorithm) == (serves, algorithm)
    assert sentence in reason.sentence


@pytest.mark.slow
@needs_cudnn
def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    cw.why(RESNET, "engine-20", "h200")
    assert capfd.readouterr() == ("", "")


@needs_cudnn
def test_what_the_graph_cannot_say_is_not_asked_of_cudnn() -> None:
    reason = cw.why(f"{RESNET} ep:bias+hardswish", "engine-2", "h200")
    assert str(reason).endswith(": cuDNN can fuse relu, gelu, silu, not hardswish")


@pytest.mark.parametrize(
    ("algorithm", "device", "sentence"),
    [
        ("cudnn/fft", "a100", "unknown on sm_80: "),
        ("cudnn/3", "h200", "cuDNN lists this algorithm but computes no problem with it"),
        ("cudnn/fft", "cpu", "cuDNN needs an NVIDIA GPU"),
        pytest.param("engine-20", "cpu", "cuDNN needs an NVIDIA GPU", marks=pytest.mark.slow),  # starts a process
        ("torch/default", "h200", "PyTorch needs a device of this machine"),
        ("triton/weight-gradient-3xtf32", "h200", "needs a channels-last `input`"),
        ("triton/weight-gradient", "h200", "computes backward_weight, not forward"),
        ("torch/onednn-fused", "cpu", "needs an activation to fuse, got none"),
        ("torch/onednn", "h200", "PyTorch needs a device of this machine"),
        ("space-to-depth(2, reference/gemm)", "cpu", "a stride of 1x1 leaves nothing to fold"),
    ],
)
def test_for_all_others_the_list_has_the_reason(algorithm: str, device: str, sentence: str) -> None:
    reason = cw.why(RESNET, algorithm, device)
    assert not reason.serves
    assert sentence in reason.sentence
    assert reason.causes == ()
    assert "log" not in reason.sentence  # which nobody was asked for


@pytest.mark.parametrize(
    ("problem", "algorithm", "id_", "serves"),
    [
        (RESNET, "winograd", "reference/winograd", True),
        (RESNET, "onednn", "torch/onednn", True),
        ("ic4ih8oc4kh3sh2", "winograd", "reference/winograd", False),
        (RESNET, "implicit-gemm", "cudnn/implicit-gemm", False),
    ],
)
def test_on_a_cpu_a_name_without_a_backend_is_one_that_can_run_there(
    problem: str, algorithm: str, id_: str, serves: bool
) -> None:
    reason = cw.why(problem, algorithm, "cpu")
    assert (reason.algorithm, reason.serves) == (id_, serves)


def test_a_candidate_says_so() -> None:
    assert cw.why(RESNET, "torch/default", "cpu").sentence == "it is a candidate, with no workspace"
    assert cw.why(RESNET, "split-batch(4, reference/gemm)", "cpu").serves
    assert cw.why(RESNET, "reference/winograd", "cpu").sentence.startswith("it is a candidate as reference/winograd[m=")


@pytest.mark.parametrize(
    ("problem", "algorithm", "sentence"),
    [
        (RESNET, "reference/nonsense", "no algorithm here is called 'reference/nonsense'"),
        (RESNET, "cudnn/engine-2[x=1]", "knobs of an engine are written as in"),
        (RESNET, "", "why takes the id of an algorithm such as 'cudnn/engine-20', got ''"),
        (3, "engine-20", "why takes a problem or its text, got 3"),
    ],
)
def test_mistakes(problem: str, algorithm: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        cw.why(problem, algorithm, "cpu")


def child(monkeypatch: pytest.MonkeyPatch, attempt: str) -> None:
    script = f"import os, time; from convwright.tuning.worker import serve; serve({{'attempt': lambda *_: {attempt}}})"
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", script])


def test_a_process_that_dies_of_it_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "os.kill(os.getpid(), 9)")
    assert cw.why(RESNET, "engine-20", "h200").sentence == "its process died of SIGKILL"


def test_one_that_hangs_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "time.sleep(60)")
    monkeypatch.setattr(module, "MOST_ATTEMPT_S", 0.5)
    assert cw.why(RESNET, "engine-20", "h200").sentence == "its process did not answer within 0.5 s"


def test_a_mistake_of_ours_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "{}['no such thing']")
    with pytest.raises(BackendError, match="the process that asks cudnn failed: KeyError: 'no such thing'"):
        cw.why(RESNET, "engine-20", "h200")


def test_one_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "COMMAND", ["/nowhere/python"])
    with pytest.raises(BackendError, match="the process that asks cudnn could not be started"):
        cw.why(RESNET, "engine-20", "h200")


@pytest.mark.parametrize(
    "name",
    ["cudnn/fft-tilin", "cudnn/gemm-foo", "cudnn/gemmmm", "cudnn/g", "cudnn/", "triton/", "reference/directly",
     "cudnn/engine-0x", "torch/default-x"],
)  # fmt: skip
def test_what_only_begins_like_a_name_is_none(name: str) -> None:
    with pytest.raises(BadInput, match=f"no algorithm here is called '{name}'"):
        cw.why("ic8ih9oc8kh3", name, "h200")


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize(("asked", "named"), [("zz", "zz"), ("zz[k2=1]", "zz[k2=1]"), ("relayout(nhwc, zz)", "zz")])
def test_what_nothing_is_called_is_named_as_it_was_asked_for(asked: str, named: str, device: str) -> None:
    with pytest.raises(BadInput, match=f"^no algorithm here is called '{re.escape(named)}'; for this problem "):
        cw.why("ic8ih9oc8kh3", asked, device)


@pytest.mark.slow
def test_a_number_that_no_engine_has_is_not_another_engine() -> None:
    said = cw.why("ic8ih9oc8kh3", "engine-1234567890", "h200")
    assert not said.serves
    assert "1234567890" in said.algorithm


def test_rewrites_say_how_they_stand_around_others_or_why_they_cannot() -> None:
    refused = cw.why("ic8ih9oc8kh3", "pad-c", "h200")
    assert (refused.serves, refused.sentence) == (
        False, "8 input and 8 output channels per group are multiples of 8 already"
    )  # fmt: skip
    served = cw.why("ic8ih9oc8kh3", "relayout", "h200")
    assert (served.serves, served.sentence) == (True, "it can stand around others as relayout(nhwc, …)")


def test_a_refusal_of_exactly_what_is_asked_comes_first() -> None:
    said = cw.why("mb2ic8oc8ih16kh3ph1", "cudnn/winograd[math=tf32]", "t4")
    assert said.sentence == "Tesla T4 (sm_75) has no TF32"
