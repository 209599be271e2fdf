"""``convwright quantize``: what a model's convolutions would cost in accuracy in int8."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

import typer

from convwright.cli.advise import LOADING, MAKING
from convwright.cli.interrupt import stoppable
from convwright.cli.library_models import names_library_model
from convwright.cli.model_target import InputShape, made_by
from convwright.cli.output_form import Layer
from convwright.cli.workspace import MaxWorkspace

TARGET = (
    "module:function or path/to/file.py:function, which returns a model, or a model and an example of its input; or "
    "timm:NAME or torchvision:NAME, with --input."
)


def quantize(
    target: Annotated[str, typer.Argument(help=TARGET, show_default=False)],
    *,
    input_: InputShape = None,
    samples: Annotated[
        str | None,
        typer.Option(
            help="module:function or path/to/file.py:function, which returns an iterable of inputs; by default the "
            "example is the one sample."
        ),
    ] = None,
    layer: Layer = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A layer to keep in its precision, by its path or a pattern (layer1.*).")
    ] = None,
    ranges: Annotated[
        str,
        typer.Option(
            help="The range of a layer's inputs: mse (the least mean squared error) or largest (the largest magnitude)."
        ),
    ] = "mse",
    max_layer_error: Annotated[
        float,
        typer.Option(help="Largest error of a layer's result (relative L2). Other layers keep their precision."),
    ] = 0.1,
    max_workspace: MaxWorkspace = None,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how much accuracy a model loses, layer by layer and as a whole, if its convolutions compute in int8.

    Scales are calibrated on the samples. The model is not changed, and nothing is written: cw.quantize returns the
    quantized model.
    """

    from convwright.cli.targets import Targets, check_makes, running
    from convwright.core.policy import Policy
    from convwright.errors import BadInput
    from convwright.naming import one_of
    from convwright.report.words.output import output
    from convwright.report.words.plain import as_json as strict_json
    from convwright.report.words.progress import progress_bar

    policy = Policy(max_workspace_bytes=max_workspace, deterministic=deterministic)
    kept = stoppable("before the model was calibrated", kept="searches that were done are remembered")
    targets = [target] if samples is None else [target, samples]
    with kept, running(*targets, as_json=as_json), progress_bar(LOADING) as progress:
        from convwright.engine.capture.example import Subject
        from convwright.quantizing.calibration import Ranges
        from convwright.quantizing.quantize import quantize as make
        from convwright.report.tables.quantized import print_quantized

        held = one_of(Ranges, "`ranges`", ranges)
        progress(0, 0, MAKING)
        files = [each for each in targets if not names_library_model(each)]
        loaded = Targets(files)
        for each in files:
            check_makes(each, loaded.functions[each], "a model" if each == target else "samples")
        model = made_by(target, input_, partial(loaded.call, target))
        if isinstance(model, tuple):
            subject = Subject.made(model, by=target)
            model, given = subject.model, [subject.example]
        elif not callable(model):
            raise BadInput(f"{target!r} must return a model, or (model, example), got {type(model).__name__}")
        elif samples is None:
            raise BadInput(
                f"{target!r} returned no example beside the model, so --samples must say where inputs are, or --input "
                "which shape they have"
            )
        if samples is not None:
            given = loaded.call(samples)
            if not isinstance(given, Iterable):
                raise BadInput(f"--samples: {samples!r} must return an iterable of inputs, got {type(given).__name__}")
        made = make(
            model, given,
            keep=keep or (), layers=layer, ranges=held, max_layer_error=max_layer_error, policy=policy,
            progress=progress,
        )  # fmt: skip
    if as_json:
        print(strict_json(made.to_json()))
    else:
        print_quantized(made, output())
