"""Read the text of any problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.resize import ResizeProblem
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput

# By the first word. Any other text is a convolution's.
_PARSERS: Mapping[str, Callable[[str], Problem]] = {
    "linear": LinearProblem.parse,
    "pointwise": PointwiseProblem.parse,
    "copy": CopyProblem.parse,
    "pool": PoolProblem.parse,
    "resize": ResizeProblem.parse,
}
KINDS = ("conv", *_PARSERS)


def parse(text: str) -> Problem:
    """Read any problem's text.

    >>> parse("ic8ih9oc8kh3").kind, parse('pointwise "a + b" mb1ic8ih9').kind
    ('conv', 'pointwise')
    """
    if not isinstance(text, str):
        return ConvProblem.parse(text)  # its error says what was expected
    first, _, rest = text.strip().partition(" ")
    if first in _PARSERS:
        return _PARSERS[first](text)
    if first.isalpha() and rest:
        raise BadInput(f"no kind of problem is called {first!r}; there are {', '.join(KINDS)}")
    return ConvProblem.parse(text)
