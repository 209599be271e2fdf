"""The pages of docs/reference, made from docstrings and signatures: what stands there is what the code says.

    python docs/make_reference.py [--write]

Without ``--write`` the pages are printed; with it, they are written.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import MemberDescriptorType
from typing import Any

import convwright

FOLDER = Path(__file__).parent / "reference"
_WIDEST = 100


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the reference. Names are those of the public face, or ``module:Name`` for what is returned by it."""

    file: str
    title: str
    intro: str
    names: tuple[str, ...]


PAGES = (
    Page(
        "computing.md",
        "Computing",
        "Convolutions, and what decides how they are computed. [Using it](../using.md) explains them with examples.",
        (
            "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv2d_into",
            "algorithms", "enable", "disable", "enabled", "last_choice", "convert", "revert", "plan",
            "BoundPlan", "TensorPlan", "register_kernel", "unregister_kernel", "optimize", "load", "Engine",
            "PlannedEngine",
            "convwright.engine.inspecting.profile:Profile",
            "convwright.engine.running.memory_report:MemoryReport",
            "convwright.engine.inspecting.comparison:Comparison",
            "convwright.engine.buckets.bucketed:BucketedEngine", "convwright.engine.partial:PartialEngine",
            "convwright.quantizing.int8_layer:Int8Conv", "convwright.nn:MSDNet", "emit_c",
            "emit_c_dynamic",
        ),
    ),
    Page(
        "knowing.md",
        "Knowing",
        "What there is, what it takes, and what could be had: [finding](../finding.md), [advice](../advise.md), "
        "[tuning](../tune.md), [int8](../quantize.md), [measuring](../measuring.md).",
        (
            "find", "show", "why", "predict", "predict_sweep", "learn", "advise", "tune", "sample", "quantize",
            "measure", "measure_together", "compare",
            "device_facts", "Store", "convwright.prediction.learning:Learned",
            "convwright.prediction.error_report:ErrorReport", "convwright.engine.network_prediction:NetworkPrediction",
            "convwright.engine.network_prediction:LayerPrediction",
            "Predictions",
        ),
    ),
    Page(
        "placing.md",
        "Placing",
        "Which jobs run on which devices. [Placing jobs](../placing.md) explains it with an example.",
        (
            "place", "convwright.placement:Job", "convwright.placement:Device", "convwright.placement:Estimate",
            "convwright.placement:Placement", "convwright.placement:pareto", "convwright.placement:simulate",
            "convwright.placement:draw", "convwright.placement:read_spec",
        ),
    ),
    Page(
        "describing.md",
        "Describing",
        "Questions as data: what is to be computed, where, and what is allowed. Nothing here needs a GPU, and only "
        "`problem` and `problem_of_module` need PyTorch.",
        (
            "ConvProblem", "problem", "problem_of_module", "Direction", "Policy", "DeviceFacts",
            "convwright.core.policy:Objective", "convwright.core.policy:Weights",
            "convwright.core.dtype:DType", "convwright.core.dtype:Arithmetic",
            "convwright.core.tensor_spec:TensorSpec", "convwright.core.epilogue:Epilogue",
        ),
    ),
    Page(
        "results.md",
        "Results",
        "What the functions give back. All of it is frozen data, as are problems, policies and devices, and has a "
        "`to_json()` that gives it as JSON can hold it. Times are in microseconds, and None is what is not known.",
        (
            "Findings", "convwright.tuning.choose:Verdict", "convwright.core.finding:Finding",
            "convwright.core.finding:Measurement", "convwright.core.finding:Interval",
            "convwright.core.finding:KindError", "convwright.core.candidate:Candidate",
            "convwright.core.candidate:Refusal", "convwright.api.why:Reason",
            "convwright.tuning.session:Choice",
            "convwright.advising.advice:Advice", "convwright.advising.advice:LayerAdvice",
            "convwright.advising.suggestion:Suggestion", "convwright.advising.tuned:Tuned",
            "convwright.advising.tuned:TunedProblem", "convwright.campaign.sampled:Sampled",
            "convwright.core.observation:Observation", "convwright.quantizing.quantized:Quantized",
            "convwright.quantizing.quantized:QuantizedLayer", "Timing", "convwright.measuring.compare:Verdict",
            "convwright.measuring.energy:Energy", "convwright.measuring.kernels:Kernel", "EmittedC",
        ),
    ),
    Page(
        "errors.md",
        "Errors",
        "Every error that is raised on purpose is one sentence: what was asked, what was expected, what was given.",
        (
            "ConvwrightError", "BadInput", "convwright.errors:BadCall", "convwright.errors:BadArgument", "Refused",
            "BackendError", "StepFailed", "OutOfMemory", "StoreError", "StoreWarning",
            "MemoryWarning", "FailureWarning", "IgnoredWarning",
        ),
    ),
)  # fmt: skip


def pages() -> dict[Path, str]:
    """Each page's file and text."""
    return {FOLDER / page.file: _page(page) for page in PAGES}


def _page(page: Page) -> str:
    head = f"# {page.title}\n\n<!-- made by docs/make_reference.py -->\n\n{page.intro}\n"
    return "\n".join([head, *(_entry(name) for name in page.names)])


def _entry(name: str) -> str:
    module, colon, attribute = name.rpartition(":")
    if not colon:
        module, attribute = convwright._HOMES[name], name
    value = getattr(import_module(module), attribute)
    shown = f"convwright.{attribute}" if not colon else f"{module}.{attribute}"
    body = _class(value, attribute) if inspect.isclass(value) else _function(value, attribute)
    return f"## {attribute}\n\n`{shown}`\n\n{body}\n"


def _function(function: Any, name: str) -> str:
    return f"{_code(_signature(function, name))}\n\n{_prose(function)}"


def _class(cls: type, name: str) -> str:
    parts = []
    if issubclass(cls, Enum):
        parts.append(_code("\n".join(f"{name}.{member.name} = {_literal(member)}" for member in cls)))
    elif dataclasses.is_dataclass(cls) or name in convwright.nn.__all__:
        parts.append(_code(_signature(cls, name)))
    elif issubclass(cls, Exception):
        bases = ", ".join(base.__name__ for base in cls.__bases__)
        parts.append(_code(f"class {name}({bases})"))
    parts.append(_prose(cls))
    members = list(_members(cls))
    properties = [name for name in members if isinstance(vars(cls)[name], property)]
    if properties:
        parts.append("\n".join(_property(cls, name) for name in properties))
    parts += [_method(cls, name) for name in members if name not in properties]
    return "\n\n".join(parts)


def _members(cls: type) -> Iterator[str]:
    """What a class defines itself, in its order, apart from fields and what begins with an underscore."""
    fields = {each.name for each in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name, value in vars(cls).items():
        called = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
        if called and not name.startswith("_") and name not in fields and not isinstance(value, MemberDescriptorType):
            yield name


def _property(cls: type, name: str) -> str:
    value = vars(cls)[name]
    told = inspect.getdoc(value)
    line = f"* `{name}: {_annotation(inspect.signature(value.fget).return_annotation)}`"
    return f"{line}: {_text(told)}".replace("\n", "\n  ") if told else line


def _method(cls: type, name: str) -> str:
    own, prefix = getattr(cls, name), "" if inspect.isfunction(vars(cls)[name]) else f"{cls.__name__}."
    heading = f"### {cls.__name__}.{name}\n\n{_code(_signature(own, prefix + name))}"
    told = inspect.getdoc(own)
    return heading + (f"\n\n{_text(told)}" if told else "")


def _prose(thing: Any) -> str:
    told = inspect.getdoc(thing)
    if not told:
        sys.exit(f"{thing!r} has no docstring")
    return _text(told)


def _signature(function: Any, name: str) -> str:
    """``name(first: int, *, second: str = "x") -> str``, one parameter a line where that is too long."""
    signature, made_of = inspect.signature(function), inspect.unwrap(function)
    entering = made_of is not function and inspect.isgeneratorfunction(made_of)  # it is a context manager
    words, star = [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            words.append("*")
            star = True
        words.append(_parameter(parameter))
    begin, end = f"{name}(", f"){_returning(signature.return_annotation)}"
    if entering:
        begin, end = f"with {begin}", "): ..."
    line = begin + ", ".join(words) + end
    if len(line) <= _WIDEST:
        return line
    return "\n".join([begin, *(f"    {word}," for word in words), end])


def _returning(annotation: Any) -> str:
    return "" if annotation in (None, "None", inspect.Signature.empty) else f" -> {_annotation(annotation)}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    word = f"{stars.get(parameter.kind, '')}{parameter.name}"  # type: ignore[call-overload]
    if parameter.annotation is not inspect.Parameter.empty:
        word += f": {_annotation(parameter.annotation)}"
    return word if parameter.default is inspect.Parameter.empty else f"{word} = {_literal(parameter.default)}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _literal(value: Any) -> str:
    """A default as one would write it."""
    if isinstance(value, Enum):
        value = value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and value == type(value)():
        return f"{type(value).__name__}()"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _text(told: str) -> str:
    """A docstring as Markdown: its examples in fences, its literals in single backticks, its arguments as a list."""
    lines, fenced = [], False
    told = re.sub(r"^Args:\n", "", told, flags=re.MULTILINE)
    told = re.sub(r"^    (\w+): ", r"* ``\1``: ", told, flags=re.MULTILINE)
    for line in told.splitlines():
        if line.startswith(">>>") and not fenced:
            lines.append("```pycon")
            fenced = True
        elif not line and fenced:
            lines.append("```")
            fenced = False
        lines.append(line if fenced else line.replace("``", "`"))
    return "\n".join([*lines, "```"] if fenced else lines)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def main() -> None:
    for path, text in pages().items():
        if "--write" in sys.argv:
            path.write_text(text)
        else:
            print(text)


if __name__ == "__main__":
    main()
