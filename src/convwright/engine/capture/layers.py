"""Every convolution that a model runs on an example, as a problem with the name of its layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager.asking.autocast import autocasting, cast, lowered_dtype, uncast
from convwright.eager.asking.describe import problem_of, transposed_problem_of
from convwright.eager.calls.call import as_batch
from convwright.eager.calls.posed import Wanted, gradient_problems, trained
from convwright.eager.gradients.fused_gradients import fused_problems
from convwright.engine.capture.example import Model, Subject
from convwright.engine.capture.intercept import Convolution, Watcher, watching
from convwright.engine.capture.trails import Follower, Trail, Trails
from convwright.engine.capture.unchanged import unchanged, unwritten
from convwright.errors import BadInput, ConvwrightError, in_words
from convwright.tensors import core_dtype
from convwright.torch_api import AnyConvolution


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One convolution of a model and how often it runs.

    ``name`` is the path of its module ("layer1.0.conv1"). A function call is named "functional#3" after the path of
    the module that makes it. ``problem`` is the forward problem; a transposed convolution has a backward_data problem.
    ``wanted`` lists the gradients that a training step computes. ``follows`` lists the functions directly after it that
    a kernel could fuse, unless the call is fused already. ``own_weight`` is True if its weight is a parameter or a
    buffer, False if each run computes it anew.
    """

    name: str
    problem: ConvProblem
    has_bias: bool
    calls: int
    wanted: Wanted = Wanted()
    follows: tuple[Follower, ...] = ()
    own_weight: bool = True

    def problems(self) -> Iterator[ConvProblem]:
        """The problem itself and the problems of the gradients that are needed."""
        yield self.problem
        yield from (each for each in gradient_problems(self.problem, self.wanted) if each is not None)

    def fused_problems(self, policy: Policy, device: DeviceFacts) -> Iterator[ConvProblem]:
        """Gradient problems that include the derivative of the epilogue, which a step uses if a kernel fuses it."""
        yield from (each for each in fused_problems(self.problem, self.wanted, policy, device) if each is not None)


@dataclass(frozen=True, slots=True)
class Recording:
    """The convolutions of one run. ``left_out`` gives the reason for each one that no problem describes, by name."""

    layers: tuple[LayerCall, ...]
    left_out: tuple[tuple[str, str], ...]
    device: torch.device | None


def convolutions_of(model: Model, example: object, *, backward: bool = False) -> tuple[LayerCall, ...]:
    """Every convolution that ``model`` runs on ``example``, in the order in which they first run.

    The model runs once, in its present mode; its state is restored afterwards. It runs without gradients unless
    ``backward`` asks which are needed. Modules, functions, scripted and compiled models are all covered.

    >>> layers = convolutions_of(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), torch.ones(1, 3, 8, 8))
    >>> layers[0].name, layers[0].problem.y.shape, [follower.op for follower in layers[0].follows]
    ('0', (1, 8, 6, 6), ['relu'])
    """
    return record(Subject.of(model, example), backward=backward).layers


def record(subject: Subject, *, backward: bool = False) -> Recording:
    """Like ``convolutions_of``, with what was left out and the device of the first convolution."""
    recorder = _Recorder(subject.module)
    with unchanged(subject.module), unwritten(subject.given()), ExitStack() as stack:
        stack.enter_context(torch.enable_grad() if backward else torch.no_grad())
        stack.enter_context(recorder.names_kept())
        with watching(recorder):
            results = _result(subject)
        recorder.trails.keep(results)
    return recorder.recording()


def _result(subject: Subject) -> Any:
    """The model's result. If it does not run, the model or its example is wrong."""
    try:
        return subject()
    except ConvwrightError:
        raise
    except Exception as error:
        raise BadInput(f"the model does not run on its example: {in_words(error)}") from error


@dataclass(slots=True, eq=False)
class _Seen:
    """One layer while the model runs. A module called with two sizes counts as two layers."""

    call: LayerCall
    trails: list[Trail] = field(default_factory=list)

    def layer_call(self) -> LayerCall:
        first, *others = (tuple(trail.followers) for trail in self.trails)
        common = sum(1 for _ in _agreeing(first, others))
        return replace(self.call, calls=len(self.trails), follows=first[:common])


class _Recorder(Watcher):
    def __init__(self, module: nn.Module | None) -> None:
        self.trails = Trails()
        self._paths = {} if module is None else dict(_paths(module))
        self._tensors = [] if module is None else [*module.parameters(), *module.buffers()]
        self._running: list[nn.Module] = []
        self._seen: dict[tuple[str, ConvProblem, Wanted, bool], _Seen] = {}
        self._functional: dict[str, list[object]] = {}
        self._left_out: dict[str, str] = {}
        self._device: torch.device | None = None

    def convolution(self, call: Convolution, output: Tensor) -> None:
        name = self._name(call.w)
        self.trails.pass_by(torch.conv2d, (call.x, call.residual), {}, output, self._path())
        wanted = Wanted.of(*call.operands)
        try:
            problem = trained(_problem(call), wanted)
        except ConvwrightError as error:
            self._left_out[name] = str(error)
            return
        own = self._is_own(call)
        layer = LayerCall(name, problem, call.bias is not None, 0, wanted, own_weight=own)
        seen = self._seen.setdefault((name, problem, wanted, own), _Seen(layer))
        seen.trails.append(self.trails.begin(output, ended=call.activation is not None or call.residual is not None))
        self._device = self._device or call.x.device

    def function(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        self.trails.pass_by(function, args, kwargs, result, self._path())

    def recording(self) -> Recording:
        layers = tuple(seen.layer_call() for seen in self._seen.values())
        return Recording(layers, tuple(self._left_out.items()), self._device)

    @contextmanager
    def names_kept(self) -> Iterator[None]:
        """Keep track of the module that is running."""

        def enter(module: nn.Module, _args: Any) -> None:
            self._running.append(module)

        def leave(_module: nn.Module, _args: Any, _result: Any) -> None:
            self._running.pop()

        with ExitStack() as stack:
            for module in self._paths:
                stack.callback(module.register_forward_pre_hook(enter, prepend=True).remove)
                stack.callback(module.register_forward_hook(leave, always_call=True).remove)
            yield

    def _path(self) -> str:
        return self._paths[self._running[-1]] if self._running else ""

    def _is_own(self, call: Convolution) -> bool:
        """Whether the convolution reads a parameter or buffer itself, rather than a copy made by parametrization or
        autocast."""
        weight = call.w
        if _autocasts(call.x) and lowered_dtype(weight) is not weight.dtype:
            return False
        return isinstance(weight, nn.Parameter) or any(weight is tensor for tensor in self._tensors)

    def _name(self, weight: Tensor) -> str:
        path = self._path()
        if self._running and isinstance(self._running[-1], AnyConvolution):
            return path or type(self._running[-1]).__name__
        # The same parameter means the same layer. A weight that was just computed identifies no layer.
        weights = self._functional.setdefault(path, [])
        if not isinstance(weight, nn.Parameter) or not any(weight is known for known in weights):
            weights.append(weight if isinstance(weight, nn.Parameter) else None)
            number = len(weights)
        else:
            number = next(index for index, known in enumerate(weights, 1) if known is weight)
        return f"{path}.functional#{number}".removeprefix(".")


def _paths(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Modules with their paths, without the wrappers of compiling and scripting."""
    for path, module in model.named_modules():
        wrapped = hasattr(module, "_orig_mod")
        if not wrapped and not isinstance(module, torch.jit.ScriptModule):
            yield module, path.replace("_orig_mod.", "").removesuffix("_orig_mod")


def _problem(call: Convolution) -> ConvProblem:
    """The problem of a call. A call that no problem describes raises an error with the reason."""
    x, w = call.x.detach(), call.w.detach()
    bias, residual = (None if each is None else each.detach() for each in (call.bias, call.residual))
    if _autocasts(x):
        x, w, bias = uncast(x, lambda: cast(x, w, bias))
    if x.dim() == w.dim() - 1:
        x, residual = x.unsqueeze(0), as_batch(residual)
    if x.numel() == 0:
        raise BadInput(f"its input is empty: {tuple(x.shape)}")
    if x.layout is not torch.strided or w.layout is not torch.strided:
        raise BadInput(f"its operands have no strides: {x.layout} and {w.layout}")
    if core_dtype(x.dtype).narrow:
        raise BadInput(f"its operands are {x.dtype}, and no problem gives PyTorch's results for that")
    window: dict[str, Any] = {
        "stride": call.stride, "padding": call.padding, "dilation": call.dilation, "groups": call.groups,
    }  # fmt: skip
    if call.transposed:
        return transposed_problem_of(x, w, bias, output_padding=call.output_padding, **window)
    if residual is not None and residual.dtype is not x.dtype:
        return problem_of(x, w, bias, **window)  # under autocast, PyTorch adds the bias itself
    return problem_of(x, w, bias, residual=residual, activation=call.activation, **window)


def _autocasts(x: Tensor) -> bool:
    return torch.amp.is_autocast_available(x.device.type) and autocasting(x)


def _agreeing(first: tuple[Follower, ...], others: list[tuple[Follower, ...]]) -> Iterator[Follower]:
    for position, follower in enumerate(first):
        if any(other[position : position + 1] != (follower,) for other in others):
            return
        yield follower
