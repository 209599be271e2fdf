"""A problem's text, completed by options that stand for words of it."""

from __future__ import annotations

from convwright.errors import BadInput

DTYPE_HELP = (
    "fp64, fp32, fp16 or bf16; int8, fp8_e4m3 or fp8_e5m2 with an fp32 output, or int8:int8:int8 with an int8 one; "
    "fp32 by default."
)


def complete(text: str, **options: str | None) -> str:
    """``text`` with a word for each option that is given; none may stand in it already.

    >>> complete("ic8ih9oc8kh3 dir:forward", dt="fp16", tag=None)
    'ic8ih9oc8kh3 dir:forward dt:fp16'
    """
    given = {word.partition(":")[0] for word in text.split()[1:]}
    for name, value in options.items():
        if value is not None:
            if name in given:
                raise BadInput(f"{name} is given twice: in the problem's text and as an option")
            text += f" {name}:{value}"
    return text
