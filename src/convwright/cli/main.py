"""The command line: one subcommand a file, one verb each."""

from __future__ import annotations

import sys

import typer

from convwright.cli.advise import advise
from convwright.cli.bench import bench
from convwright.cli.explain import explain
from convwright.cli.find import find
from convwright.cli.show_env import show_env
from convwright.cli.store import store_app
from convwright.cli.time import time_
from convwright.cli.tune import tune
from convwright.errors import BadInput, ConvwrightError

app = typer.Typer(
    help="Finds, for any convolution, every way of running it, says what each costs, and runs the best one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("advise")(advise)
app.command("bench")(bench)
app.command("explain")(explain)
app.command("find")(find)
app.command("show-env")(show_env)
app.add_typer(store_app, name="store")
app.command("time")(time_)
app.command("tune")(tune)


def main() -> None:
    """Run the command line. A user's mistake is one sentence and exit code 2."""
    try:
        app()
    except BadInput as error:
        print(f"convwright: {error}", file=sys.stderr)
        sys.exit(2)
    except ConvwrightError as error:
        print(f"convwright: {error}", file=sys.stderr)
        sys.exit(1)
