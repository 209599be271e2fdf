"""The kernels of dense layers without a GPU: what they serve, that they compile, and results."""

from __future__ import annotations

import pytest

from backends.interpreted import passes_in_the_interpreter
from convwright.backends.triton.dense_layers.plan import (
    DenseLayers,
    Layers,
    gradient_call,
    output_call,
    weights_call,
)
from convwright.backends.triton.launching.kernel_call import interpreting
from convwright.core.dtype import DType
from convwright.core.profiles import profile
from convwright.errors import Refused
from convwright.measuring.hardware.machine import device_facts

pytest.importorskip("triton")

H200 = profile("h200")
LAYERS = Layers(1, 1, (1, 2, 3), 2)


@pytest.mark.skipif(interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")
@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16])
@pytest.mark.parametrize("width", [1, 4])
def test_they_are_compiled_once_for_all_layers(width: int, dtype: DType) -> None:
    layers, images = Layers(1, width, tuple(range(1, 11)) * 2, 2), (1, 64, 60)
    calls = [
        output_call(layers, images, dtype),
        *(gradient_call(layers, images, dtype, of_input=of_input) for of_input in (False, True)),
        weights_call(layers, images, dtype, jobs=60, together=4 // width, steps=2, parts=15),
    ]
    for call in calls:
        text = call.compile("sm_90").asm["ptx"]
        assert "griddepcontrol.wait" in text
        assert ".local" not in text  # where registers would be kept that are too many


@pytest.mark.skipif(interpreting(), reason="TRITON_INTERPRET is set: a CPU is served")
def test_a_cpu_is_refused() -> None:
    with pytest.raises(Refused, match="need an NVIDIA GPU, got"):
        DenseLayers(LAYERS, (1, 8, 8), DType.FP32, device_facts("cpu"))


@pytest.mark.parametrize(
    ("layers", "images", "dtype", "words"),
    [
        (Layers(1, 5, (1,), 2), (1, 8, 8), DType.FP32, "up to 4 channels each"),
        (LAYERS, (1, 8, 8), DType.FP64, "stored in 32 bits or 16"),
        (LAYERS, (0, 8, 8), DType.FP32, r"1 to 2\^31 - 1 elements, got 0"),
        (LAYERS, (1, 2**15, 2**15), DType.FP32, "got 4,294,967,296"),
    ],
)
def test_a_refusal_says_what_is_served(layers: Layers, images: tuple[int, int, int], dtype: DType, words: str) -> None:
    with pytest.raises(Refused, match=words):
        DenseLayers(layers, images, dtype, H200)


def test_what_they_compute_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_dense_layers.py")
