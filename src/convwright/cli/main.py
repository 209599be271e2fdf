"""The command line: one subcommand a file, one verb each."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal

import typer

from convwright import __version__
from convwright.cli.advise import advise
from convwright.cli.bench import bench
from convwright.cli.emit_c import emit_c
from convwright.cli.explain import explain
from convwright.cli.find import find
from convwright.cli.learn import learn
from convwright.cli.letters import print_with_what_there_is
from convwright.cli.optimize import optimize
from convwright.cli.passes import passes
from convwright.cli.place import place
from convwright.cli.predict import predict
from convwright.cli.quantize import quantize
from convwright.cli.run import run
from convwright.cli.sample import sample_app
from convwright.cli.show_env import show_env
from convwright.cli.store import store_app
from convwright.cli.time import time_
from convwright.cli.tune import tune
from convwright.errors import BadInput, ConvwrightError, StoreWarning

# The class of all mistakes in words and options. Where it lives differs between versions of Typer.
_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]
# What a full disk, a file that may not grow, a closed file and a terminal that is gone answer to a write.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)
# What Typer says of a word that is none of an option's.
_QUOTE = "'"
_CHOICE = re.compile(r"Invalid value for '(--[\w-]+)': (?:Value error, )?('.*') is not one of (.+)")
_NUMBER = re.compile(r"Invalid value for '(--[\w-]+)': Input should be a valid (number|integer)\b.*")
# The columns from which on help stands in boxes.
_BOXES_FROM = 70

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
# The commands by what they are for, in the order of --help. Some have a shorter line there than their own page.
_MODEL, _PROBLEMS, _DEVICES, _STORE = (
    "Make a model faster", "Look at convolutions", "Other devices", "The store and this machine",
)  # fmt: skip
app.command("optimize", rich_help_panel=_MODEL)(optimize)
app.command("run", rich_help_panel=_MODEL)(run)
app.command("advise", rich_help_panel=_MODEL, short_help="Say what can make a model's convolutions faster.")(advise)
app.command("tune", rich_help_panel=_MODEL)(tune)
app.command("quantize", rich_help_panel=_MODEL, short_help="Say what each layer loses in int8.")(quantize)
app.command("passes", rich_help_panel=_MODEL)(passes)
app.command("find", rich_help_panel=_PROBLEMS)(find)
app.command("explain", rich_help_panel=_PROBLEMS)(explain)
app.command("bench", rich_help_panel=_PROBLEMS)(bench)
app.command("time", rich_help_panel=_PROBLEMS, short_help="Time calls of your own, side by side.")(time_)
app.command("emit-c", rich_help_panel=_PROBLEMS, short_help="Write one of cuDNN's convolutions as a C file.")(emit_c)
app.command("predict", rich_help_panel=_DEVICES)(predict)
app.command("place", rich_help_panel=_DEVICES)(place)
app.add_typer(sample_app, name="sample", rich_help_panel=_DEVICES)
app.command("learn", rich_help_panel=_DEVICES)(learn)
app.add_typer(store_app, name="store", rich_help_panel=_STORE)
app.command("show-env", rich_help_panel=_STORE)(show_env)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"convwright {__version__}")
        raise typer.Exit


@app.callback()
def _convwright(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Makes convolutional networks in PyTorch run faster.

    Finds every way to run a convolution, measures what each costs, and runs the best one.
    """


@cache
def _command(of: typer.Typer, markup: Literal["rich"] | None) -> Callable[..., Any]:
    """Click's form of it, which takes as long to make as a short command to run."""
    of.rich_markup_mode = markup
    command: Callable[..., Any] = typer.main.get_command(of)
    if markup == "rich":
        _prepare(command)
    return command


def _prepare(command: Any) -> None:
    """Prepare help texts for Rich, which breaks lines where a docstring does, and takes a word in brackets for markup:
    join the lines of each paragraph, and put a backslash before such words."""
    if command.help:
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
    for each in (command, *command.params):
        if "[" in (getattr(each, "help", None) or ""):
            from rich.markup import escape

            each.help = escape(each.help)
    for inner in getattr(command, "commands", {}).values():
        _prepare(inner)


def _markup() -> Literal["rich"] | None:
    """How help is drawn: where a terminal is narrow, without boxes, in which names of options would be cut short."""
    return "rich" if shutil.get_terminal_size().columns >= _BOXES_FROM else None


def main() -> None:
    """Run the command line. A user's mistake is one sentence and exit code 2."""
    if sys.stdout is None:  # as Python leaves it where the shell has closed it
        _end("standard output is closed, so nothing can be printed", 1)
    print_with_what_there_is()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _shown(warnings.showwarning)
            code = _command(app, _markup())(standalone_mode=False)
        sys.stdout.flush()  # What cannot be written shows here, and not when Python ends.
    except _USAGE_ERROR as error:
        _end(_mistake(error), 2)
    except BadInput as error:
        _end(str(error), 2)
    except ConvwrightError as error:
        _end(str(error), 1)
    except typer.Abort:
        print("Aborted.", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # ahead of the command, which ends by itself
        sys.exit(130)
    except OSError as error:
        _end(_unwritable(error), 1)
    sys.exit(code)


def _shown(others: Callable[..., None]) -> Callable[..., None]:
    """What shows a warning about the store as our own sentence, and ``others`` as Python does."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, StoreWarning):
            print(f"convwright: {message}", file=sys.stderr)
        else:
            others(message, category, *where, **more)

    return show


def _end(sentence: str, code: int) -> None:
    if sentence:
        print(f"convwright: {sentence}", file=sys.stderr)
    sys.exit(code)


def _mistake(error: Any) -> str:
    """What Typer says of wrong words and options, as one sentence with the value; empty where it printed the help."""
    said = " ".join(error.format_message().split()).removesuffix(".")
    if (choice := _CHOICE.fullmatch(said)) is not None:
        option, given, choices = choice.groups()
        return f"{option} must be one of {choices.replace(_QUOTE, '')}, got {given}"
    # Typer hands on what a validator says, which names the expected kind of value but not the given one.
    details = getattr(error.__cause__, "errors", None)
    given = f", got {details()[0]['input']!r}" if callable(details) else ""
    if (number := _NUMBER.fullmatch(said)) is not None:
        return f"{number[1]} must be a {'whole ' * (number[2] == 'integer')}number{given}"
    said = said.replace(". Did you mean", ", did you mean").replace("': Input", "': input")
    if not said or type(error).__name__ == "NoArgsIsHelpError":
        return ""
    where = f" (`{error.ctx.command_path} --help` tells more)" if error.ctx is not None else ""
    return f"{said[0].lower()}{said[1:]}{given}{where}"


def _unwritable(error: OSError) -> str:
    """That the output cannot be written, and why; nothing where nobody reads it any more."""
    if error.filename is not None or error.errno not in (*_UNWRITABLE, errno.EPIPE):
        raise error
    # Python writes what is left in the buffer once more when it ends, and would complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return "" if error.errno == errno.EPIPE else f"the output cannot be written: {os.strerror(error.errno)}"
