"""The part of docs/cli.md that the command line itself tells, so that the page cannot go stale.

    python docs/make_cli.py [--write]

Without ``--write`` it is printed; with it, it replaces what stands between the markers in the page.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer.main

from convwright.cli.main import app

PAGE = Path(__file__).parent / "cli.md"
START, END = "<!-- made by docs/make_cli.py -->", "<!-- end -->"
_VALUES = {int: "N", float: "NUMBER", Path: "PATH", str: "TEXT"}


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command below ``command`` with what has to be typed for it, in the order of ``--help``."""
    inner = getattr(command, "commands", None)
    if inner is None or getattr(command, "invoke_without_command", False):
        yield name, command
    for verb, each in sorted((inner or {}).items()):
        if not each.hidden:
            yield from commands(each, f"{name} {verb}")


def everything() -> list[tuple[str, Any]]:
    return list(commands(typer.main.get_command(app), "convwright"))


def text() -> str:
    return "\n".join(_section(name, command) for name, command in everything())


def _section(name: str, command: Any) -> str:
    values, shown = _value_of(command.callback), [each for each in command.params if not each.hidden]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    usage = " ".join([name, *(_argument(each) for each in arguments), *(["[OPTIONS]"] if options else [])])
    rows = [f"| {_code(_argument(each))} | {_help(each)} | {_default(each)} |" for each in arguments]
    rows += [f"| {_option(each, values(each.name))} | {_help(each)} | {_default(each)} |" for each in options]
    table = ["| | | default |", "|---|---|---|", *rows] if rows else []
    level = "#" * (name.count(" ") + 1)
    return "\n".join([f"{level} {name}", "", inspect.cleandoc(command.help or ""), "", f"    {usage}", "", *table, ""])


def _value_of(callback: Callable[..., object]) -> Callable[[str], str]:
    """What stands for the value of a parameter: PATH, N, …."""
    hints = get_type_hints(callback)

    def value(name: str) -> str:
        kinds = {kind for kind in (hints[name], *get_args(hints[name])) if kind in _VALUES}
        return _VALUES[kinds.pop()] if kinds else "TEXT"

    return value


def _argument(argument: Any) -> str:
    word = (argument.metavar or argument.name.upper().rstrip("_")) + ("…" if argument.nargs < 0 else "")
    return word if argument.required else f"[{word}]"


def _option(option: Any, value: str) -> str:
    names = [*option.opts, *(name for name in option.secondary_opts if option.default)]
    takes = "" if option.is_flag else f" {option.metavar or value}"
    return ", ".join(_code(f"{name}{takes}") for name in names)


def _code(word: str) -> str:
    """A word as code inside a table, where a bar would end the cell."""
    return f"<code>{word.replace('|', '&#124;')}</code>" if "|" in word else f"`{word}`"


def _help(parameter: Any) -> str:
    said = (parameter.help or "").replace("|", "\\|")
    return (
        said
        + (" May be given several times." if parameter.multiple else "")
        + (" Must be given." if parameter.required else "")
    )


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.default is None or parameter.required:
        return ""
    if parameter.is_flag:
        return "yes" if parameter.default else ""
    return f"`{parameter.default}`"


def page() -> str:
    """The page as it should be."""
    before, start, rest = PAGE.read_text().partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        sys.exit(f"{PAGE} has no place for it: the markers {START} and {END} are missing")
    return f"{before}{START}\n\n{text()}\n{END}{after}"


def main() -> None:
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(text())


if __name__ == "__main__":
    main()
