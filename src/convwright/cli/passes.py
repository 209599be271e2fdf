"""``convwright passes``: what happens to a network before it is planned."""

from __future__ import annotations

from typing import Annotated

import typer

from convwright.cli.advise import TARGET
from convwright.cli.model_target import InputShape, model_and_example
from convwright.naming import singular


def passes(
    target: Annotated[str, typer.Argument(help=TARGET, show_default=False)],
    *,
    input_: InputShape = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show the lines of the network that each pass changes.")] = False,
) -> None:
    """Show how a network is simplified before it is planned.

    Prints what each pass changes. Nothing is measured, and the model is not changed.
    """
    from difflib import unified_diff

    from convwright import torch_api
    from convwright.cli.targets import running
    from convwright.engine.export.exported import exported
    from convwright.engine.passes.listed import PASSES

    with running(target, as_json=False):
        model, example = model_and_example(target, shape=input_)
        network = exported(model, example, torch_api.flatten(example)[0]).network
    print(singular(f"captured: {len(network.graph.nodes)} nodes"))
    for name, change in PASSES.items():
        changed = change(network)
        before, after = (str(each.graph).splitlines() for each in (network, changed.network))
        changes, nodes = len(changed.sentences), len(changed.network.graph.nodes)
        print(singular(f"\n{name}: {changes} changes, {nodes} nodes left"))
        for sentence in changed.sentences:
            print(f"  {sentence}")
        if diff:
            for line in list(unified_diff(before, after, n=0, lineterm=""))[2:]:
                if not line.startswith("@@"):
                    print(f"  {line}")
        network = changed.network
