"""One algorithm of cuDNN's asked for by name: who answers for it, and what is passed on to cuDNN."""

from __future__ import annotations

import pytest

from backends.fake_cudnn import GPU, FakeCudnn
from convwright.backends.cudnn.attempt import attempt, can_be_asked
from convwright.backends.cudnn.library import Missing, load
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BackendError, BadInput, Refused
from convwright.measuring.hardware.machine import device_facts

H200, CPU = profile("h200"), device_facts("cpu")
PROBLEM = ConvProblem.parse("mb2ic8ih9oc8kh3")


@pytest.mark.parametrize(
    ("algorithm", "anywhere", "on_a_gpu"),
    [
        ("engine-0", True, True),
        ("engine-48[k2=2,k13=-1]", True, True),
        ("fft", False, True),
        ("fft[math=tf32]", False, True),
        ("algo-3", False, True),
        ("engine-", False, False),
        ("engine-2[k2]", False, False),
        ("engine-2[k2=1,]", False, False),
        ("engine-2 ", False, False),
        ("nonsense", False, False),
    ],
)
def test_engines_can_be_asked_anywhere_and_algorithms_where_the_device_is(
    algorithm: str, anywhere: bool, on_a_gpu: bool
) -> None:
    assert can_be_asked(algorithm, H200) is anywhere
    assert can_be_asked(algorithm, CPU) is anywhere  # where the answer is that it is no GPU
    assert can_be_asked(algorithm, GPU) is on_a_gpu


@pytest.mark.parametrize(("algorithm", "number"), [("gemm", 2), ("fft[math=tf32]", 4)])
def test_only_the_algorithm_that_was_asked_for_is_queried(
    algorithm: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn = FakeCudnn(monkeypatch)
    assert attempt(PROBLEM, algorithm, GPU) == 640
    queries = [args for name, args in cudnn.calls if name.endswith("WorkspaceSize")]
    assert [args[5] for args in queries] == [number]
    maths = [args[1] for name, args in cudnn.calls if name == "cudnnSetConvolutionMathType"]
    assert maths[-1] == (0 if "tf32" in algorithm else 3)  # the default, which may, and FMA


def test_a_refused_query_is_raised_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn = FakeCudnn(monkeypatch)
    cudnn.answers["cudnnGetConvolutionForwardWorkspaceSize"] = 3000
    with pytest.raises(Refused, match=r"^cudnn/winograd: cuDNN does not support this \(status 3000\)$"):
        attempt(PROBLEM, "winograd", GPU)


def test_an_algorithm_of_another_direction_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCudnn(monkeypatch)
    with pytest.raises(BadInput, match="algorithms of the classic API forward are implicit-gemm, "):
        attempt(PROBLEM, "algo-1", GPU)


@pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")
def test_knobs_go_to_the_engine() -> None:
    problem = ConvProblem.parse("mb32ic256ih14oc256kh3ph1")
    assert attempt(problem, "engine-48[k2=2,k13=2]", H200) > 0
    with pytest.raises(BackendError, match="status 3000"):
        attempt(problem, "engine-48[k2=99,k13=2]", H200)
