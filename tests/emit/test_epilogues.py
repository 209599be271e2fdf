"""What stands around a convolution, and no template writes, is refused in both forms."""

from __future__ import annotations

import re

import pytest

from convwright.backends.cudnn.library import Missing, load
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.literals import problem_literal
from convwright.emit.one import emit_c
from convwright.errors import BadInput
from emit.forms import algorithm

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")


@pytest.mark.parametrize("epilogue", ["accumulate", "scale+relu", "gelu", "bias+silu", "residual+hardswish"])
def test_an_epilogue_that_no_template_writes_is_refused(epilogue: str) -> None:
    fused = "a C file fuses only residual, bias and relu after a forward convolution"
    said = f"{fused}, got the epilogue {re.escape(epilogue)}"
    with pytest.raises(BadInput, match=said):
        emit_c_dynamic([], epilogue=epilogue, device="h200")
    with pytest.raises(BadInput, match=said):
        emit_c(f"mb2ic16ih12oc24kh3ph1 ep:{epilogue}", device="h200")
    with pytest.raises(BadInput, match=said):
        emit_c(f"mb2ic16ih12oc24kh3ph1 ep:{epilogue}", algorithm="cudnn/gemm", device="h200")


def test_no_literal_leaves_an_activation_out() -> None:
    with pytest.raises(BadInput, match=r"got the epilogue bias\+gelu on forward"):
        problem_literal(algorithm("gemm", "mb2ic16ih12oc24kh3ph1 ep:bias+gelu"))
