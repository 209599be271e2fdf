"""The C code that all emitted files share, assembled with the user's name.

It is stored in ``c/`` as C, so that it can be read and checked as such. The parts that differ replace ``@word@``, and
the user's name replaces ``conv``, with which every public name begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources

from convwright.errors import BadInput

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
# Names of headers that a file includes, and names that these declare with the same prefixes.
_TAKEN = re.compile(
    r"pthread\w*|timer|cuda|cuda_(device_)?runtime(_api)?|cudnn|cudnn_(adv|cnn|graph|knob|ops|rnn|status|version)\w*|"
    r"(builtin|device|driver|library|surface|texture|vector)_types|host_(config|defines)|"
    r"std(arg|bool|def|int|io|lib)|strings?|alloca|byteswap|endian|features|limits|sched|select|setjmp|time|types|wchar",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*")
_WORD = re.compile(r"(?:/\*)?@(\w+)@(?:\*/)?")


def assemble(parts: Sequence[str], name: str, words: Mapping[str, str]) -> str:
    """The files ``parts``, one after another, with ``words`` inserted and ``name`` for ``conv``."""
    check_name(name)
    template = "\n".join(part(each).strip() + "\n" for each in parts)
    known = set(_IDENTIFIER.findall(template))
    clash = known & {_renamed(each, name) for each in known if each != _renamed(each, name)}
    if clash:
        raise BadInput(f"the name {name} would give two things the name {min(clash)}: give another name")
    return _WORD.sub(lambda word: words[word[1]], _renamed(template, name))


def header(file: str, name: str, words: Mapping[str, str]) -> str:
    """The header ``file``, with the codes that all headers share."""
    return assemble([file], name, {**words, "codes": assemble(["codes.h"], name, {}).strip()})


def part(file: str) -> str:
    """One of the files in ``c/``."""
    return (resources.files(__package__) / "c" / file).read_text(encoding="utf-8")


def check_name(name: str) -> None:
    """Raise if ``name`` cannot begin names in C, or begins names of the included headers."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(f"the name must have at most 40 letters, digits and underscores, a letter first, got {name!r}")
    if _TAKEN.fullmatch(name):
        raise BadInput(
            f"the name {name} is a header that a C file includes, or begins a name in one: give another name"
        )


def _renamed(text: str, name: str) -> str:
    text = re.sub(r"\bconv_", f"{name}_", text)
    text = re.sub(r"\bCONV_", f"{name.upper()}_", text)
    return text.replace('"conv.h"', f'"{name}.h"')
