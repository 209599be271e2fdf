"""A problem's text, completed by options that stand for words of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from convwright.errors import BadInput
from convwright.naming import one_of

DTYPE_HELP = (
    "fp64, fp32, fp16 or bf16; int8, fp8_e4m3 or fp8_e5m2 with an fp32 output, or int8:int8:int8 with an int8 one; "
    "fp32 by default."
)

# PyTorch's name for it.
_CHANNELS_LAST = "channels_last"

_Member = TypeVar("_Member", bound=StrEnum)


def complete(text: str, **options: str | None) -> str:
    """``text`` with a word for each option that is given; none may stand in it already.

    >>> complete("ic8ih9oc8kh3 dir:forward", dt="fp16", tag=None)
    'ic8ih9oc8kh3 dir:forward dt:fp16'
    """
    if ".py:" in text or text.endswith(".py"):
        raise BadInput(
            f"a problem such as mb32ic256ih14oc256kh3ph1 was expected, and {text!r} is a model: `convwright advise` "
            "and `convwright optimize` take models"
        )
    given = {word.partition(":")[0] for word in text.split()[1:]}
    options |= {"tag": layout_word(options.get("tag")), "dir": direction_word(options.get("dir"))}
    for name, value in options.items():
        if value is not None:
            if name in given:
                raise BadInput(f"{name} is given twice: in the problem's text and as an option")
            text += f" {name}:{value}"
    return text


def layout_word(given: str | None) -> str | None:
    """What ``--layout`` means in a problem's text.

    >>> layout_word("NHWC"), layout_word("channels-last"), layout_word(None)
    ('nhwc', 'nhwc', None)
    """
    from convwright.core.tensor_spec import Layout

    if given is not None and _plain(given) == _CHANNELS_LAST:
        return str(Layout.NHWC)
    return _word(Layout, "--layout", given, but=Layout.STRIDED)  # which says no strides


def direction_word(given: str | None) -> str | None:
    """What ``--direction`` means in a problem's text.

    >>> direction_word("Backward-Data")
    'backward_data'
    """
    from convwright.core.direction import Direction

    return _word(Direction, "--direction", given)


def _word(kind: type[_Member], option: str, given: str | None, *, but: _Member | None = None) -> str | None:
    if given is None:
        return None
    word = _plain(given)
    return str(one_of(kind, option, word if word in list(kind) else given, but=but))


def _plain(given: str) -> str:
    return given.lower().replace("-", "_")
