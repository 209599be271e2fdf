"""Replace PyTorch's convolution functions everywhere, so that unmodified libraries use ours; and restore them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from inspect import Signature, signature
from itertools import cycle
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from convwright import flags, torch_api
from convwright.core.policy import Policy
from convwright.eager.asking import ambient
from convwright.eager.calls.call import Call, Form, Request, stand_ins
from convwright.eager.functional import PASSES, convolution, named_after, transposed_convolution
from convwright.eager.places import Places
from convwright.eager.running.pytorchs_own import PLAIN, explain, refuse_algorithm
from convwright.eager.slow_path import slow_path
from convwright.errors import BadInput
from convwright.forking import in_child
from convwright.settings import settings
from convwright.uncompiled import uncompiled

_lock = threading.RLock()


def _unlock() -> None:
    global _lock
    _lock = threading.RLock()


in_child(_unlock)


@dataclass(slots=True, eq=False)
class _State:
    """Whether PyTorch's functions are replaced, and the policy of the replacements."""

    on: bool
    policy: Policy | None


# The state outside of all blocks, then one for each open block; the last one applies. Blocks of several threads may
# overlap and end in any order.
_states = [_State(False, None)]
_places = Places()
# Modules for per-sample gradients, and for quantization of graphs.
_COMPARING = (
    "torch.nn.utils._expanded_weights.conv_utils",
    "torch.ao.quantization.qconfig_mapping",
    "torch.ao.quantization.backend_config._common_operator_config_utils",
    "torch.ao.quantization.fx.utils",
    "torch.ao.quantization.fx._equalize",
    "torch.ao.quantization.fx._lower_to_native_backend",
    "torch.ao.ns.fx.mappings",
    "torch.ao.ns.fx.weight_utils",
)


@uncompiled()
def enable(*, policy: Policy | None = None) -> None:
    """From now on, compute every convolution of this process, of any library, by the best candidate for ``policy``.

    This replaces the functions of ``torch.nn.functional``, so the modules that call them, and every module that has
    imported one of them by name, use ours. Bad calls, and calls that only PyTorch can serve, go to PyTorch's own
    functions, so errors are PyTorch's. ``torch.compile`` keeps PyTorch's convolutions. A ``policy`` that cannot be
    kept, such as one for the least energy in mode quick, is an error at the call. ``disable`` undoes it.
    """
    _check(policy)
    with _lock:
        _states[-1].on, _states[-1].policy = True, policy
        _put(thorough=True)


@uncompiled()
def disable() -> None:
    """Restore PyTorch's own functions everywhere, and forget all decisions made for the replacements."""
    with _lock:
        _states[-1].on, _states[-1].policy = False, None
        _put(thorough=True)
        for form in stand_ins():
            form.slots.forget()


@uncompiled()
@contextmanager
def enabled(*, policy: Policy | None = None) -> Iterator[None]:
    """``enable`` for a block, in all threads; the state before applies again afterwards.

    Decisions made inside are remembered for the next such block.

    >>> import torch
    >>> layer = torch.nn.Conv2d(3, 4, 3)
    >>> with enabled():
    ...     layer(torch.ones(1, 3, 8, 8)).shape
    torch.Size([1, 4, 6, 6])
    """
    _check(policy)
    block = _State(True, policy)
    try:
        with _lock:
            _states.append(block)
            _put()
        yield
    finally:
        with _lock:
            _states.remove(block)
            _put()


def is_enabled() -> bool:
    """Whether PyTorch's functions are replaced now."""
    return _states[-1].on


ambient.contexts.is_enabled = is_enabled


def _check(policy: object) -> None:
    settings()  # errors in the environment are raised here, not at each call
    if policy is not None and not isinstance(policy, Policy):
        raise BadInput(f"`policy` must be a Policy, got {type(policy).__name__}")


def _put(*, thorough: bool = False) -> None:
    """Apply the current state."""
    on, policy = _states[-1].on, _states[-1].policy
    seen = _originals() if on else {"F": torch.nn.functional, "torch": torch}
    for names in map(vars, _comparing()):
        names.update((name, module) for name, module in seen.items() if name in names)
    pairs = [(form.own, stand_in(form)) for form in stand_ins()]
    for looking in map(_looking, stand_ins()):
        looking.__kwdefaults__ = looking.__kwdefaults__ | {"policy": policy}
    if on:
        _places.exchange({id(own): ours for own, ours in pairs}, _is_left_alone, thorough=thorough)
    else:
        # Modules imported meanwhile hold our functions, too. Any other holder calls PyTorch's through ours from now on.
        _places.exchange({id(ours): own for own, ours in pairs}, lambda name: False, thorough=thorough)
    for form in stand_ins():
        form.slots.show(on)


@cache
def _comparing() -> tuple[ModuleType, ...]:
    """PyTorch's modules that compare a called function with those in their ``F`` or ``torch``.

    They are imported before anything is replaced, since they also build tables of functions.
    """
    modules = []
    for name in _COMPARING:
        with suppress(ImportError):
            modules.append(import_module(name))
    return tuple(modules)


@cache
def _originals() -> dict[str, ModuleType]:
    """Copies of ``torch.nn.functional`` and ``torch`` with PyTorch's own convolutions."""
    functional = _view(torch.nn.functional, **{form.name: form.own for form in stand_ins()})
    return {"F": functional, "torch": _view(torch, nn=_view(torch.nn, functional=functional))}


def _view(module: ModuleType, **instead: Any) -> ModuleType:
    """``module`` with some names replaced."""
    view = ModuleType(module.__name__)
    vars(view).update(instead, __getattr__=partial(getattr, module))
    return view


def _is_left_alone(name: str) -> bool:
    """Whether a module keeps the originals: PyTorch's internals, whose functions represent operators, and ours."""
    return name != "torch.nn.functional" and name.partition(".")[0] in ("torch", "convwright")


@cache
def _looking(form: Form) -> Any:
    """Our function with a lookup."""
    make = transposed_convolution if form.transposed else convolution
    # Callers of PyTorch's functions expect PyTorch's errors, so nothing explains them.
    return make(form, _or_torchs_own, lambda theirs, call: None, looks_first=False)


@cache
def stand_in(form: Form) -> Any:
    """The replacement for ``form.own``. It is always the same object, since others, such as compilers, may keep it.

    Layers that PyTorch's own function serves should hardly slow down, so this reads only what is needed for those.
    """
    own, skipping, looking, deterministic = form.own, form.slots.skip_lookup.get, _looking(form), flags.deterministic
    is_compiling, tracing, capturing = torch.compiler.is_dynamo_compiling, torch_api.is_tracing, torch_api.is_capturing
    passes, tensor = cycle(PASSES).__next__, Tensor
    named_as_torchs = [each for each in signature(looking).parameters.values() if each.kind is not each.KEYWORD_ONLY]
    arguments = frozenset(each.name for each in named_as_torchs)

    def conv(*given: Any, **named: Any) -> Any:
        if is_compiling() or (
            len(given) > 1 and (but_captures := skipping(id(given[1]))) is not None and type(given[0]) is tensor
            and not (but_captures and capturing()) and (passes() or tracing()) and not deterministic()
        ):  # fmt: skip
            return own(*given, **named)
        if len(given) < 2 or type(given[0]) not in PLAIN or type(given[1]) not in PLAIN:
            operand = _overriding_operand(*given, *named.values())
            if operand is not None:
                if isinstance(operand, Tensor):  # any other, such as a proxy of a trace, computes nothing
                    why = f"an operand is a {type(operand).__name__}, and no plain tensor"
                    refuse_algorithm(form, Request(), why)
                return own(*given, **named)  # an object that overrides functions expects the call as it was made
        if named and not arguments.issuperset(named):
            return own(*given, **named)  # PyTorch refuses arguments that only ours takes
        try:
            return looking(*given, **named)
        except TypeError as error:
            mistaken = error
        own(*given, **named)  # raises PyTorch's own error for the arguments as given
        raise mistaken

    function = named_after(form, conv)
    # Passes of torch.fx inspect the signature.
    function.__signature__ = Signature(named_as_torchs)
    # A pickled reference resolves to whatever is in PyTorch's place when it is loaded.
    function.__module__, function.__doc__ = "torch.nn.functional", form.own.__doc__
    return function


def _overriding_operand(*given: object) -> object | None:
    """The first operand that overrides PyTorch's functions, if any."""
    return next((each for each in given if type(each) not in PLAIN and hasattr(each, "__torch_function__")), None)


def _or_torchs_own(call: Call) -> Tensor:
    """``slow_path``, with PyTorch's own function for any call that it does not serve."""
    if torch.compiler.is_dynamo_compiling() or not _states[-1].on or not isinstance(call.x, Tensor):
        return call.torchs_own()
    if not call.x.is_floating_point():
        refuse_algorithm(call.form, call.request, f"its input is {call.x.dtype}")
        return call.torchs_own()
    try:
        return slow_path(call)
    except BadInput as mistake:
        y = call.torchs_own()  # raises PyTorch's own error if the input is wrong
        if ambient.current() is not None or call.request.policy is not None:
            _refuse_what_is_asked(call, mistake)
        return y


def _refuse_what_is_asked(call: Call, mistake: BadInput) -> None:
    """Raise the mistake only if PyTorch accepts the call and the caller asked for something impossible: an unknown
    algorithm, or a policy that cannot be kept."""
    try:
        explain(call)
    except BadInput as why:
        refuse_algorithm(call.form, call.request, str(why))
    else:
        raise mistake
