"""Every ``F.conv*`` and ``nn.Conv*`` of any library, unmodified: the functions are put in PyTorch's place, and back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


class _State:
    """Whether PyTorch's functions are replaced, and what is allowed to what replaces them."""

    __slots__ = ("on", "policy")

    def __init__(self, on: bool, policy: Policy | None) -> None:
        self.on, self.policy = on, policy


# What holds outside of all blocks, and in each that is open; what holds is the last. Blocks of several threads may
# overlap, and need not end in the order in which they began.
_states = [_State(False, None)]
_places = Places()
# Per-sample gradients, and the quantization of graphs with what compares it.
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
# What a call of PyTorch's functions asks for by itself: no algorithm.
_AS_WRITTEN = Request(no_bias=True, stride=1, padding=0, dilation=1, groups=1)


@uncompiled()
def enable(*, policy: Policy | None = None) -> None:
    """From now on every convolution of this process, of any library, is computed by the best that ``policy`` allows.

    It reaches ``torch.nn.functional``'s functions, the modules that call them, and every module that has imported
    one of them by name. Calls that only PyTorch can serve, and bad ones, go to PyTorch's own functions, so errors
    are its own; what ``torch.compile`` compiles is left to it. A ``policy`` that cannot be kept, such as one for the
    least energy in mode quick, is an error at the call. ``disable`` takes everything back.
    """
    _check(policy)
    with _lock:
        _states[-1].on, _states[-1].policy = True, policy
        _put(thorough=True)


@uncompiled()
def disable() -> None:
    """Put PyTorch's own functions back wherever others stand in their place, and forget what was decided for them."""
    with _lock:
        _states[-1].on, _states[-1].policy = False, None
        _put(thorough=True)
        for form in stand_ins():
            form.slots.forget()


@uncompiled()
@contextmanager
def enabled(*, policy: Policy | None = None) -> Iterator[None]:
    """``enable`` for a block; what held before holds again behind it. It holds for all threads.

    What was decided inside is remembered for the next such block.

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
    """Whether PyTorch's functions are replaced at the moment."""
    return _states[-1].on


def _check(policy: object) -> None:
    settings()  # what is wrong with the environment is said here, and not at calls, of which each would ask again
    if policy is not None and not isinstance(policy, Policy):
        raise BadInput(f"`policy` must be a Policy, got {type(policy).__name__}")


def _put(*, thorough: bool = False) -> None:
    """Put in place what holds now."""
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
        # Modules that were imported in the meantime hold ours too; what else does is served by PyTorch from now on.
        _places.exchange({id(ours): own for own, ours in pairs}, lambda name: False, thorough=thorough)
    for form in stand_ins():
        form.slots.show(on)


@cache
def _comparing() -> tuple[ModuleType, ...]:
    """PyTorch's modules that compare the function that was called with what they find in their ``F`` or ``torch``.

    They are imported before anything is exchanged, since they enter functions in tables as well.
    """
    modules = []
    for name in _COMPARING:
        with suppress(ImportError):
            modules.append(import_module(name))
    return tuple(modules)


@cache
def _originals() -> dict[str, ModuleType]:
    """``torch.nn.functional`` and ``torch`` with PyTorch's own convolutions, whatever stands in their place there."""
    functional = _view(torch.nn.functional, **{form.name: form.own for form in stand_ins()})
    return {"F": functional, "torch": _view(torch, nn=_view(torch.nn, functional=functional))}


def _view(module: ModuleType, **instead: Any) -> ModuleType:
    """``module`` with other things under some of its names."""
    view = ModuleType(module.__name__)
    vars(view).update(instead, __getattr__=partial(getattr, module))
    return view


def _is_left_alone(name: str) -> bool:
    """PyTorch's inside, where functions stand for operators, and this package, which needs the originals."""
    return name != "torch.nn.functional" and name.partition(".")[0] in ("torch", "convwright")


@cache
def _looking(form: Form) -> Any:
    """Ours, for what is to be looked at."""
    make = transposed_convolution if form.transposed else convolution
    return make(form, _or_torchs_own, _in_torchs_words, looks_first=False)


@cache
def stand_in(form: Form) -> Any:
    """What takes the place of ``form.own``: the same object each time, since others may keep it, and compilers do.

    Layers that PyTorch's own function serves should hardly notice, so what is read for those is all that there is here.
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
            told = _who_is_told(*given, *named.values())
            if told is not None:
                _refuse_algorithm_for(form, told)
                return own(*given, **named)  # whoever is told of it expects the call as it was made
        if named and not arguments.issuperset(named):
            return own(*given, **named)  # which refuses what only ours takes
        try:
            return looking(*given, **named)
        except TypeError as error:
            mistaken = error
        own(*given, **named)  # says in PyTorch's words what is wrong with the arguments as they were given
        raise mistaken

    function = named_after(form, conv)
    # Whoever asks, as the passes of torch.fx do, is told of the arguments that it takes.
    function.__signature__ = Signature(named_as_torchs)
    # Pickled where it stands, it is whatever stands there when it is loaded.
    function.__module__, function.__doc__ = "torch.nn.functional", form.own.__doc__
    return function


def _who_is_told(*given: object) -> object | None:
    """The operand that wants to be told of PyTorch's functions, if one does."""
    return next((each for each in given if type(each) not in PLAIN and hasattr(each, "__torch_function__")), None)


def _refuse_algorithm_for(form: Form, told: object) -> None:
    """What is no tensor, as in a symbolic trace, notes the call; nothing is computed that an algorithm could serve."""
    if isinstance(told, Tensor):
        refuse_algorithm(form, _AS_WRITTEN, f"an operand is a {type(told).__name__}, and no plain tensor")


def _in_torchs_words(*_: object) -> None:
    """Whoever calls PyTorch's functions expects its errors."""


def _or_torchs_own(call: Call) -> Tensor:
    """``slow_path``; PyTorch's own function for whatever that does not serve, and for everything when this is over."""
    if torch.compiler.is_dynamo_compiling() or not _states[-1].on or not isinstance(call.x, Tensor):
        return call.torchs_own()
    if not call.x.is_floating_point():
        refuse_algorithm(call.form, call.request, f"its input is {call.x.dtype}")
        return call.torchs_own()
    try:
        return slow_path(call)
    except BadInput as mistake:
        y = call.torchs_own()  # says in PyTorch's words what is wrong with the input
        if ambient.current() is not None or call.request.policy is not None:
            _refuse_what_is_asked(call, mistake)
        return y


def _refuse_what_is_asked(call: Call, mistake: BadInput) -> None:
    """Of what PyTorch takes: either it can be no problem here, or the algorithm that was asked for does not exist, or
    the policy cannot be kept."""
    try:
        explain(call)
    except BadInput as why:
        refuse_algorithm(call.form, call.request, str(why))
    else:
        raise mistake
