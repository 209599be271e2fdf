"""Draw problems of other kinds with random sizes: the operations between a network's convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from convwright.campaign.random_convolutions import channels, dtype_for, log_uniform, one_by_share
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse

# Expressions, and the words of operands smaller than the output. The last ones reduce rows.
_EXPRESSIONS = (
    ("relu(a + b)", ""), ("a + b", ""), ("silu(a)", ""), ("gelu(a)", ""), ("hardswish(a)", ""),
    ("relu(a * s + b)", "s:c b:c"), ("a * sigmoid(b)", ""), ("relu(a + b) + c", ""), ("a * s", "s:nc"),
    ("mean(a)", "row:hw y:nc"), ("max(a)", "row:hw y:nc"), ("(a - mean(a)) * s", "row:hw s:c"),
    ("a - mean(a)", "row:chw"), ("sum(a * a)", "row:hw y:nc"),
)  # fmt: skip


def other_problem(random: Random, device: DeviceFacts) -> tuple[Problem, str]:
    """A problem and its kind. Raises ``BadInput`` if the drawn sizes are invalid."""
    name = one_by_share(random, _SHARES)
    return parse(_TEXTS[name](random, f"dt:{dtype_for(random, device)}")), name


def _image(random: Random) -> str:
    n, side = log_uniform(random, 1, 128), log_uniform(random, 1, 512)
    other = side if random.random() < 0.75 else log_uniform(random, 1, 512)
    return f"mb{n}ic{channels(random)}ih{side}iw{other}"


def _layout(random: Random) -> str:
    return random.choice(("nchw", "nhwc"))


def _pointwise(random: Random, dtype: str) -> str:
    expression, operands = random.choice(_EXPRESSIONS)
    return f'pointwise "{expression}" {_image(random)} {dtype} tag:{_layout(random)} {operands}'


def _copy(random: Random, dtype: str) -> str:
    pair = random.choice(("nchw->nhwc", "nhwc->nchw", "nchw->nchw", "nhwc->nhwc"))
    stored = dtype if random.random() < 0.6 else random.choice(("dt:fp32->fp16", "dt:fp16->fp32", "dt:fp32->bf16"))
    pad = f" pad:h={random.randint(0, 3)},w={random.randint(0, 3)}" if random.random() < 0.4 else ""
    return f"copy {_image(random)} {pair} {stored}{pad}"


def _linear(random: Random, dtype: str) -> str:
    sizes = f"mb{log_uniform(random, 1, 8192)}ic{channels(random, 8192)}oc{channels(random, 8192)}"
    return f"linear {sizes} {dtype} ep:{random.choice(('none', 'bias', 'bias+relu', 'bias+gelu', 'residual+bias'))}"


def _pool(random: Random, dtype: str) -> str:
    taps = random.choice((2, 3, 3, 5, 7))
    padding = random.randint(0, taps // 2)
    window = f"kh{taps}kw{taps}sh{random.randint(1, taps)}ph{padding}pw{padding}"
    return f"pool {random.choice(('max', 'avg'))} {_image(random)} {window} {dtype} tag:{_layout(random)}"


def _resize(random: Random, dtype: str) -> str:
    side, factor = log_uniform(random, 1, 256), random.choice((0.5, 2, 2, 3, 4))
    image = f"mb{log_uniform(random, 1, 64)}ic{channels(random, 1024)}ih{side}iw{side}"
    out = max(round(side * factor), 1)
    return f"resize {random.choice(('nearest', 'linear'))} {image} oh{out}ow{out} {dtype} tag:{_layout(random)}"


_TEXTS: Mapping[str, Callable[[Random, str], str]] = {
    "pointwise": _pointwise, "copy": _copy, "linear": _linear, "pool": _pool, "resize": _resize,
}  # fmt: skip
_SHARES = {"pointwise": 0.3, "copy": 0.2, "linear": 0.3, "pool": 0.1, "resize": 0.1}
