"""Plans on bare addresses, on streams, and on arrays of other libraries."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import convwright as cw
from convwright.errors import BadInput

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")

FUSED = "mb4ic64ih28oc64kh3ph1 dt:fp16 tag:nhwc ep:residual+bias+relu"
PLAIN = "mb4ic64ih28oc64kh3ph1"
LAST = torch.channels_last


class Foreign:
    """A tensor as another library would hand it over."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def operands(text: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    half = "fp16" in text
    kind: dict[str, Any] = {"device": "cuda", "dtype": torch.float16 if half else torch.float32}
    form = LAST if half else torch.contiguous_format
    made = {"x": torch.randn(4, 64, 28, 28, **kind), "w": torch.randn(64, 64, 3, 3, **kind) / 24}
    made = {name: tensor.to(memory_format=form) for name, tensor in made.items()}
    made |= {"bias": torch.randn(64, **kind), "residual": torch.randn_like(made["x"])} if "ep:" in text else {}
    return made | {"out": torch.full_like(made["x"], torch.nan)}


def expected(given: dict[str, torch.Tensor]) -> torch.Tensor:
    y = F.conv2d(given["x"].double(), given["w"].double(), padding=1)
    if "bias" in given:
        y = (y + given["residual"] + given["bias"].view(1, -1, 1, 1)).relu()
    return y.to(given["x"].dtype)


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        (FUSED, "cudnn/engine-10"), (FUSED, "cudnn/implicit-precomp-gemm"), (FUSED, "triton/implicit-gemm"),
        (PLAIN, "cudnn/engine-0"), (PLAIN, "cudnn/engine-2"), (PLAIN, "cudnn/gemm"), (PLAIN, "cudnn/1"),
        (PLAIN, "cudnn/winograd-nonfused"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("foreign", [False, True])
def test_a_launch_computes_what_a_call_does(text: str, algorithm: str, foreign: bool) -> None:
    given, ready = operands(text), cw.plan(text, algorithm=algorithm, device="cuda")
    weight = ready.prepare(given["w"])
    workspace = torch.empty(max(ready.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
    own = torch.cuda.Stream()
    own.wait_stream(torch.cuda.current_stream())

    def handed(tensor: torch.Tensor | None) -> Any:
        return tensor if tensor is None else Foreign(tensor) if foreign else tensor.data_ptr()

    ready.launch(
        handed(given["x"]), handed(weight), handed(given.get("bias")), handed(given["out"]), own.cuda_stream,
        residual=handed(given.get("residual")), workspace=handed(workspace),
    )  # fmt: skip
    torch.cuda.current_stream().wait_stream(own)
    torch.testing.assert_close(given["out"], expected(given), rtol=2e-3, atol=2e-3)
    called = ready(given["x"], weight, given.get("bias"), given.get("residual"))
    torch.testing.assert_close(given["out"], called, rtol=0, atol=0)


def test_a_launch_without_its_workspace_is_refused() -> None:
    given = operands(PLAIN)
    for algorithm in ("cudnn/winograd-nonfused", "cudnn/engine-2"):
        ready = cw.plan(PLAIN, algorithm=algorithm, device="cuda")
        assert ready.workspace_bytes > 0
        with pytest.raises(BadInput, match=r"needs a workspace of .* bytes, got none"):
            ready.launch(given["x"].data_ptr(), given["w"].data_ptr(), None, given["out"].data_ptr())


def test_what_is_chosen_for_launching_launches() -> None:
    given, ready = operands(PLAIN), cw.plan(PLAIN, device="cuda", launchable=True)
    workspace = torch.empty(ready.workspace_bytes, dtype=torch.uint8, device="cuda")
    ready.launch(given["x"], ready.prepare(given["w"]), None, given["out"], workspace=workspace)
    torch.testing.assert_close(given["out"], expected(given), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("algorithm", ["triton/staged-gemm-3xfp16", "triton/implicit-gemm-3xtf32", "cudnn/engine-0"])
def test_a_thread_that_has_asked_nothing_of_the_gpu_yet_launches(algorithm: str) -> None:
    """On bare addresses, for which PyTorch, which gives a thread the GPU's context, is not asked anything."""
    given, ready = operands(PLAIN), cw.plan(PLAIN, algorithm=algorithm, device="cuda")
    weight = ready.prepare(given["w"])
    workspace = torch.empty(max(ready.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
    handed = given["x"].data_ptr(), weight.data_ptr(), None, given["out"].data_ptr()
    torch.cuda.synchronize()
    failed: list[Exception] = []

    def launched() -> None:
        try:
            ready.launch(*handed, workspace=workspace.data_ptr())
        except Exception as error:  # which would end the thread unseen
            failed.append(error)

    thread = threading.Thread(target=launched)
    thread.start()
    thread.join()
    assert failed == []
    torch.testing.assert_close(given["out"], expected(given), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("algorithm", ["cudnn/engine-0", "cudnn/gemm", "torch/default"])
def test_what_does_not_fit_is_refused_before_a_kernel_reads_it(algorithm: str) -> None:
    given, ready = operands(PLAIN), cw.plan(PLAIN, algorithm=algorithm, device="cuda")
    x, w = given["x"], ready.prepare(given["w"].to(memory_format=LAST))
    torch.testing.assert_close(ready(x, w), expected(given), rtol=2e-3, atol=2e-3)
    for wrong, said in (
        (x.cpu(), "`x` must be on cuda:0, as the plan is, got an array on cpu"),
        (x[:2], r"`x` must have the sizes \(4, 64, 28, 28\)"),
        (x.to(memory_format=LAST), "`x` must have the strides"),
        (x.half(), "`x` must be torch.float32"),
    ):
        with pytest.raises(BadInput, match=said):
            ready(wrong, w)


def test_a_workspace_that_does_not_fit_is_refused() -> None:
    given, ready = operands(PLAIN), cw.plan(PLAIN, algorithm="cudnn/winograd-nonfused", device="cuda")
    weight, room = ready.prepare(given["w"]), torch.empty(ready.workspace_bytes + 16, dtype=torch.uint8, device="cuda")
    for workspace, said in (
        (room[: ready.workspace_bytes - 1], r"`workspace` must have [\d,]+ bytes on cuda:0"),
        (room[16:], "`workspace` must begin at a multiple of 256 bytes"),
    ):
        with pytest.raises(BadInput, match=said):
            ready(given["x"], weight, workspace=workspace)
        with pytest.raises(BadInput, match=said):
            ready.launch(given["x"], weight, None, given["out"], workspace=workspace)
