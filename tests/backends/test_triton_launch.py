"""Launches without a GPU: what is refused ahead of them, and threads that have asked nothing of the GPU yet."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.few_weights.offers import Patch
from convwright.backends.triton.launching import launch
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.launching.launch import Binary, launch_of
from convwright.core.candidate import Candidate, Offer
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BackendError

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

PRESENT = replace(profile("h200"), torch_name="cuda:0")


def offers(text: str) -> list[Offer]:
    return [*TritonKernels().candidates(ConvProblem.parse(text), PRESENT, Policy())]


def offered(text: str) -> list[Candidate]:
    return [offer for offer in offers(text) if isinstance(offer, Candidate)]


def a_call() -> KernelCall:
    return kernel_calls(offered("ic2ih16oc2kh3ph1")[0])[0]


def test_a_thread_without_a_context_is_given_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    call = a_call()
    ready = launch_of(call, PRESENT)
    driver.context = None
    ready(*(torch.empty(8) for _ in call.pointers))
    assert driver.context == 0
    assert len(driver.launches) == 1
    ready(*(torch.empty(8) for _ in call.pointers))
    assert len(driver.launches) == 2


def test_more_blocks_than_a_launch_has_are_refused() -> None:
    call = replace(a_call(), blocks=2**31)
    with pytest.raises(BackendError, match="needs 2,147,483,648 blocks, but a launch has at most"):
        Binary.of(call.compile("sm_90"), call)


def test_what_triton_makes_a_trap_of_is_refused() -> None:
    """Of Blackwell's tensor memory it compiles any number of columns, of what has none that fail when they run."""

    class Wide:
        def __getattr__(self, name: str) -> object:
            return 776 if name == "tmem_size" else getattr(compiled.metadata, name)

    call = a_call()
    compiled = call.compile("sm_90")
    assert Binary.of(compiled, call).blocks == call.blocks
    told = SimpleNamespace(metadata=Wide(), hash=compiled.hash, asm=compiled.asm)
    with pytest.raises(BackendError, match="needs 776 columns of tensor memory, but there are 512"):
        Binary.of(told, call)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (
            "mb104ic64ih1024oc21kh1 dt:fp16 tag:nhwc", "boxed-gemm",
            "needs an output below 2^31 elements if the copy engine cannot store it, got 2,290,089,984",
        ),
        (
            "ic40ih8oc16kh1 tag:x=nhwc,w=40/67108864/1/1,y=nhwc", "implicit-gemm",
            "needs a weight that spans at most 2^30 elements",
        ),
        (
            "ic16ih8oc40kh1sh2 tag:x=nhwc,w=67108864/1/1/1,y=nhwc dir:backward_data", "input-gradient",
            "needs a weight that spans at most 2^30 elements",
        ),
        (
            "ic32ih8oc40kh3 tag:x=nhwc,w=67108864/9/3/1,y=nhwc", "winograd",
            "needs a weight that spans at most 2^30 elements",
        ),
        (
            "ic16ih2iw4oc16kh3kw1ph9dh8 dt:fp16 tag:x=536870912/1/268435456/16,w=nhwc,y=nhwc",
            "implicit-gemm",
            "needs offsets below 2^31, but taps span 5,100,274,016 elements of an image of `input`",
        ),
        (
            "ic3ih40000iw8oc16kh33000kw7", "folded-gemm",
            "needs at most 1,048,576 packed weights per output channel, got 1,056,000",
        ),
    ],
)  # fmt: skip
def test_offsets_that_32_bits_do_not_hold_are_refused(text: str, name: str, words: str) -> None:
    refused = [offer for offer in offers(text) if offer.id.startswith(f"triton/{name}")]
    assert refused
    for offer in refused:
        assert not isinstance(offer, Candidate), offer.id
        assert words in offer.reason


def test_patches_are_as_many_as_a_kernel_can_count() -> None:
    """Far dilations keep the pixels of a patch apart, for each of which there is one."""
    text = "g2mb256ic2ih64oc2kh2ph2048dh4095 dir:backward_weight"
    patches = [Patch.of(each) for each in offered(text) if each.algorithm == "few-weights"]
    assert patches
    assert all(patch.patches(ConvProblem.parse(text)) < 2**31 for patch in patches)


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_the_dilation_of_a_single_tap_keeps_no_rows_apart(direction: str) -> None:
    dilated, plain = (
        [each.id for each in offered(f"g32mb32ic32ih20iw512oc32kh1kw3pw64dh{high}dw63 dir:{direction}")]
        for high in (63, 0)
    )
    assert any("rows=2" in id_ or "rows=4" in id_ for id_ in dilated)
    assert dilated == plain
