"""A model whose largest exportable submodules are replaced by engines. The rest runs unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.engine.capture.unchanged import unchanged, unwritten
from convwright.engine.engine import Engine
from convwright.engine.export.inputs import check_evaluates
from convwright.engine.not_a_module import NotAModule
from convwright.engine.running.undisturbed import check_needs_no_gradient
from convwright.errors import Refused
from convwright.notebook import Lines

_CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
_Plan = Callable[[nn.Module, tuple[Any, ...]], Engine]


class PartialEngine(NotAModule):
    """A model with engines in place of submodules; ``engines`` maps their paths to them. Call it like the model.

    Everything else belongs to the model, so later changes of those weights take effect. If an engine's input has other
    sizes than in the example, the submodule itself runs. Only one thread at a time may call it.
    """

    def __init__(self, model: nn.Module, engines: Mapping[str, Engine]) -> None:
        self.engines = dict(engines)
        self._model = _with_engines(model, self.engines)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The model's outputs for these inputs, without gradients, as of ``Engine``."""
        check_needs_no_gradient(torch_api.flatten((inputs, named))[0])
        with torch.no_grad():
            return self._model(*inputs, **named)

    def explain(self) -> str:
        """The table of steps of each engine."""
        return Lines("\n\n".join(f"{path}:\n{engine.explain()}" for path, engine in self.engines.items()))

    def __repr__(self) -> str:
        return f"<PartialEngine: engines for {', '.join(self.engines)}>"

    def update(self, model: nn.Module) -> None:
        """Copy to each engine the current weights of its submodule of ``model``."""
        check_evaluates(model)
        for path, engine in self.engines.items():
            engine.update(model.get_submodule(path))


def has_parts(model: nn.Module) -> bool:
    """Whether submodules have convolutions, so that they may be planned if the model cannot."""
    return any(isinstance(each, _CONVOLUTIONS) for child in model.children() for each in child.modules())


def planned_in_parts(model: nn.Module, inputs: tuple[Any, ...], plan: _Plan, why: Refused) -> PartialEngine:
    """Plan submodules with convolutions, outermost first, with the inputs they get when the model runs on ``inputs``.
    ``why`` is the reason that the whole model cannot be planned."""
    given = _given(model, inputs)
    engines = dict(_planned("", model, given, plan))
    if not engines:
        raise Refused(
            "no part of the model can be planned either: each is called with several sizes or by name, or cannot be "
            f"exported; {why}"
        )
    return PartialEngine(model, engines)


def _planned(
    path: str, module: nn.Module, given: Mapping[nn.Module, tuple[Any, ...]], plan: _Plan
) -> Iterator[tuple[str, Engine]]:
    for name, child in module.named_children():
        inside = f"{path}.{name}" if path else name
        if not any(isinstance(each, _CONVOLUTIONS) for each in child.modules()):
            continue
        try:
            if child in given:
                yield inside, plan(child, given[child])
                continue
        except Refused:
            pass
        yield from _planned(inside, child, given, plan)


@torch.no_grad()
def _given(model: nn.Module, inputs: tuple[Any, ...]) -> dict[nn.Module, tuple[Any, ...]]:
    """The arguments of each submodule, if they are tensors of the same sizes in every call."""
    found, unlike = dict[nn.Module, tuple[Any, ...]](), set[nn.Module]()

    def note(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        tensors = torch_api.flatten(args)[0]
        plain = bool(tensors) and not named and all(isinstance(each, Tensor) for each in tensors)
        if not plain or (module in found and _forms(found[module]) != _forms(args)):
            unlike.add(module)
        found.setdefault(module, args)

    hooks = [each.register_forward_pre_hook(note, with_kwargs=True) for each in model.modules()]
    try:
        with unchanged(model), unwritten(torch_api.flatten(inputs)[0]):
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return {module: args for module, args in found.items() if module not in unlike}


def _forms(args: tuple[Any, ...]) -> list[Any]:
    return [(each.shape, each.stride(), each.dtype) for each in torch_api.flatten(args)[0]]


def _run_by(engine: Engine, module: nn.Module) -> nn.Module:
    """A copy of a submodule, with its attributes and children, whose call runs the engine, or the submodule itself for
    inputs that the engine does not take."""

    def forward(*args: Any, **named: Any) -> Any:
        fits = not named and engine.objection(torch_api.flatten(args)[0]) is None
        return engine(*args) if fits else module(*args, **named)

    made = torch_api.without_hooks(module)  # the engine and the submodule have them
    made.forward = forward
    return made


def _with_engines(model: nn.Module, engines: Mapping[str, Engine], path: str = "") -> nn.Module:
    """The model with engines in place of submodules. Modules that contain them are copied, all others are shared."""
    if path in engines:
        return _run_by(engines[path], model)
    children = {name: f"{path}.{name}" if path else name for name, _ in model.named_children()}
    own = {
        name: _with_engines(model.get_submodule(name), engines, inside)
        for name, inside in children.items()
        if any(each == inside or each.startswith(f"{inside}.") for each in engines)
    }
    return torch_api.with_children(model, own)
