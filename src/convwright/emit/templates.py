"""The C that is the same in every emitted file, put together and called by the name that is wanted.

It stands in ``c/`` as C, so that it can be read and checked as such. What differs is put in the place of ``@word@``,
and ``conv``, with which every public name begins there, gives way to the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources

from convwright.errors import BadInput

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
# What the headers that a file includes are called, and what in them begins as a public name here would.
_TAKEN = re.compile(
    r"pthread\w*|timer|cuda|cuda_(device_)?runtime(_api)?|cudnn|cudnn_(adv|cnn|graph|knob|ops|rnn|status|version)\w*|"
    r"(builtin|device|driver|library|surface|texture|vector)_types|host_(config|defines)|"
    r"std(arg|bool|def|int|io|lib)|strings?|alloca|byteswap|endian|features|limits|sched|select|setjmp|time|types|wchar",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*")
_WORD = re.compile(r"(?:/\*)?@(\w+)@(?:\*/)?")


def assemble(parts: Sequence[str], name: str, words: Mapping[str, str]) -> str:
    """The files ``parts``, one after the other, with ``words`` in their places and ``name`` for ``conv``."""
    check_name(name)
    template = "\n".join(part(each).strip() + "\n" for each in parts)
    known = set(_IDENTIFIER.findall(template))
    clash = known & {_renamed(each, name) for each in known if each != _renamed(each, name)}
    if clash:
        raise BadInput(f"the name {name} would make two things be called {min(clash)}: give another")
    return _WORD.sub(lambda word: words[word[1]], _renamed(template, name))


def header(file: str, name: str, words: Mapping[str, str]) -> str:
    """The header ``file``, with the codes that are the same in each."""
    return assemble([file], name, {**words, "codes": assemble(["codes.h"], name, {}).strip()})


def part(file: str) -> str:
    """One of the files in ``c/``."""
    return (resources.files(__package__) / "c" / file).read_text(encoding="utf-8")


def check_name(name: str) -> None:
    """Refuse what cannot be the beginning of names in C, or is that of names which a file gets from elsewhere."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(f"the name must be letters, digits and underscores, at most 40, a letter first, got {name!r}")
    if _TAKEN.fullmatch(name):
        raise BadInput(
            f"the name {name} is one of the headers that a C file includes, or of what they declare: give another"
        )


def _renamed(text: str, name: str) -> str:
    text = re.sub(r"\bconv_", f"{name}_", text)
    text = re.sub(r"\bCONV_", f"{name.upper()}_", text)
    return text.replace('"conv.h"', f'"{name}.h"')
