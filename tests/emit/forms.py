"""Candidates of every form that C is emitted for, planned for an H200 that need not be here."""

from __future__ import annotations

from convwright.backends.cudnn.graph import listing as graph
from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic, native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.emit.emitted import EmittedC
from convwright.emit.one import emitted

H200 = profile("h200")
FUSED = "mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc ep:"
ENGINES = [
    "mb2ic16ih10oc16kh3ph1",
    "mb2ic16ih10oc16kh3ph1 dt:fp64",
    "mb2ic16ih10oc16kh3ph1 dt:bf16 tag:nhwc",
    *(FUSED + epilogue for epilogue in ("bias", "relu", "residual", "bias+relu", "residual+bias+relu")),
    "mb2ic16ih10oc16kh3ph1 dt:fp64 ep:bias+relu",
    "mb2ic16ih10oc16kh3ph1 dir:backward_data",
    "mb2ic16ih10oc16kh3ph1 dt:fp64 dir:backward_data",
    "mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc dir:backward_weight",
    "mb2ic16iw50oc16kw5pw2",
    "mb2ic16iw50oc16kw5pw2 dt:fp16 tag:nhwc ep:bias+relu",
    "mb2ic16iw50oc16kw5pw2 dir:backward_weight",
    "mb1ic8id6ih7iw8oc8kd3kh3kw3pd1ph1pw1",
    "g4mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc",
    "g16mb2ic16ih10iw12oc16kh3kw5sh2sw1ph1pw2dh1dw0",
    "mb1ic8ih9oc8oh9kh3ph0",
    "mb2ic16ih9oc32kh1 dt:fp16 tag:nhwc",
    "mb2ic16ih10oc16kh3ph1 flip:1",
    "mb2ic16ih10oc16kh3ph1 tag:x=3200/100/10/1,w=nchw,y=nchw",
    "mb2ic16ih10oc16kh3ph1 dt:fp16 tag:x=nhwc@4,w=nhwc,y=nhwc",
]
ALGORITHMS = [
    ("gemm", "mb2ic16ih10oc16kh3ph1"),
    ("winograd-nonfused", "mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc"),
    ("fft-tiling", "mb2ic16ih10oc16kh3ph1 dt:fp64"),
    ("implicit-gemm", "mb2ic8iw50oc16kw5pw2sw2 dt:bf16"),
    ("implicit-gemm", "mb1ic8id6ih7iw8oc8kd3kh3kw3pd1ph1pw1"),
    ("implicit-gemm", "g4mb2ic16ih10iw12oc16kh3kw5sh2sw1ph1pw2dh1dw0 flip:1"),
    ("implicit-gemm", "mb2ic16ih10oc16kh3ph1 tag:x=3200/100/10/1,w=nchw,y=nchw"),
    *(("implicit-precomp-gemm", f"mb2ic16ih10oc16kh3ph1 ep:{epilogue}")
      for epilogue in ("bias", "relu", "residual+bias+relu")),
    ("implicit-precomp-gemm", "mb2ic16iw50oc16kw5pw2 dt:fp16 tag:nhwc ep:bias"),
    ("algo-1", "mb2ic16ih10oc16kh3ph1 dir:backward_data"),
    ("winograd-nonfused", "mb2ic16ih10oc16kh3ph1 dt:fp64 dir:backward_data"),
    ("algo-3", "mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc dir:backward_weight"),
]  # fmt: skip


def engine(text: str) -> Candidate:
    """The first engine that cuDNN proposes."""
    offers = graph.candidates(ConvProblem.parse(text), H200, Policy())
    return next(offer for offer in offers if isinstance(offer, Candidate))


def algorithm(name: str, text: str, arithmetic: Arithmetic | None = None) -> Candidate:
    problem = ConvProblem.parse(text)
    arithmetic = arithmetic or native_arithmetic(problem.dtype, tf32=False)
    return Candidate(problem, "cudnn", name, (), arithmetic, 640, True, Source.RULE)


def of(candidate: Candidate, name: str = "conv") -> EmittedC:
    return emitted(candidate, H200, name, "by a test")
