"""The kernels of dense layers without a GPU: what they serve, that they compile, and results."""

from __future__ import annotations

import pytest
import torch

from backends.interpreted import passes_in_the_interpreter
from convwright.backends.triton.dense_layers.plan import DenseKernels, DenseLayers, Layers
from convwright.backends.triton.launching.kernel_call import interpreting
from convwright.core.dtype import DType
from convwright.core.profiles import profile
from convwright.errors import Refused
from convwright.measuring.hardware.machine import device_facts

pytest.importorskip("triton")

H200 = profile("h200")
LAYERS = Layers(1, 1, (1, 2, 3), 2)


@pytest.mark.skipif(interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")
@pytest.mark.first_cases(1)
@pytest.mark.parametrize(("width", "dtype"), [(1, DType.FP32), (4, DType.FP16)])
def test_they_are_compiled_for_all_layers_and_sizes(width: int, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DenseKernels, "table", lambda self, numbers: torch.tensor(numbers))  # on no GPU
    made = DenseKernels(Layers(1, width, tuple(range(1, 11)) * 2, 2), dtype, H200)
    for call in made.calls().values():
        text = call.compile("sm_90").asm["ptx"]
        assert "griddepcontrol.wait" in text
        assert ".local" not in text  # where registers would be kept that are too many


@pytest.mark.skipif(interpreting(), reason="TRITON_INTERPRET is set: a CPU is served")
def test_a_cpu_is_refused() -> None:
    with pytest.raises(Refused, match="need an NVIDIA GPU, got"):
        DenseKernels(LAYERS, DType.FP32, device_facts("cpu"))


@pytest.mark.parametrize(
    ("layers", "dtype", "words"),
    [(Layers(1, 5, (1,), 2), DType.FP32, "at most 4 channels each"), (LAYERS, DType.FP64, "in fp32, fp16 or bf16")],
)
def test_a_refusal_says_what_is_served(layers: Layers, dtype: DType, words: str) -> None:
    with pytest.raises(Refused, match=words):
        DenseKernels(layers, dtype, H200)


@pytest.mark.parametrize(("images", "got"), [((0, 8, 8), "0"), ((1, 2**15, 2**15), "4,294,967,296")])
def test_so_many_elements_are_refused(images: tuple[int, int, int], got: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DenseKernels, "table", lambda self, numbers: torch.tensor(numbers))
    with pytest.raises(Refused, match=rf"1 to 2\^31 - 1 elements, got {got}"):
        DenseLayers(DenseKernels(LAYERS, DType.FP32, H200), images)


def test_what_they_compute_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_dense_layers.py")
