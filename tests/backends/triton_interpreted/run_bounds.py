"""The check of addresses in Triton's interpreter, by kernels that reach too far."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from convwright.backends.triton.launching.kernel_call import KernelCall


@triton.jit
def copied(x, y, FROM: tl.constexpr, COUNT: tl.constexpr, READ: tl.constexpr, WRITTEN: tl.constexpr):
    lane = tl.arange(0, COUNT)
    value = tl.load(x + FROM + lane, mask=lane < READ, other=0.0)
    tl.store(y + FROM + lane, value, mask=lane < WRITTEN)


def copy(x: torch.Tensor, y: torch.Tensor, **constants: int) -> None:
    pointers = {"x": ("fp32", 16), "y": ("fp32", 16)}
    KernelCall(copied, pointers, {"FROM": 0, "COUNT": 16, "READ": 10, "WRITTEN": 10} | constants, 1, 1, 1).interpreted(
        x, y
    )


def test_what_is_masked_is_neither_read_nor_written() -> None:
    x, y = torch.arange(10.0), torch.zeros(10)
    copy(x, y)
    assert torch.equal(x, y)


@pytest.mark.parametrize(
    ("constants", "said"),
    [
        ({"READ": 11}, "read from 0 to 44 of an operand of 40 bytes"),
        ({"WRITTEN": 11}, "written from 0 to 44 of an operand of 40 bytes"),
        ({"FROM": -1}, "read from"),
        ({"FROM": 5}, "read from 20 to 60 of an operand of 40 bytes"),
    ],
)
def test_a_kernel_that_reaches_too_far_fails(constants: dict[str, Any], said: str) -> None:
    # Slices of one buffer: nothing that the kernels touch is another one's memory.
    buffer = torch.zeros(200)
    with pytest.raises(Exception, match=said):
        copy(buffer[40:50], buffer[140:150], **constants)


@triton.jit
def written(y, APART: tl.constexpr):
    tl.store(y + tl.program_id(0) * APART + tl.arange(0, 4), 1.0)


@pytest.mark.parametrize("apart", [4, 3, 0])
def test_two_programs_write_no_element_both(apart: int) -> None:
    y = torch.zeros(8)
    call = KernelCall(written, {"y": ("fp32", 16)}, {"APART": apart}, 2, 1, 1)
    if apart == 4:
        call.interpreted(y)
        assert (y == 1).all()
        return
    with pytest.raises(Exception, match="an element of an operand of 32 bytes is written twice"):
        call.interpreted(y)


def test_a_slice_of_channels_ends_with_its_last_element() -> None:
    """Memory behind it, of the wider buffer, may not be there: it may be the buffer's end."""
    wide = torch.zeros(4, 5)
    with pytest.raises(Exception, match="read from 0 to 64 of an operand of 56 bytes"):
        copy(wide[:3, :4], torch.zeros(16), COUNT=16, READ=16, WRITTEN=16)
