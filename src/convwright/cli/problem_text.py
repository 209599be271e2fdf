"""A problem's text, completed by options that stand for words of it."""

from __future__ import annotations

from convwright.errors import BadInput


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
