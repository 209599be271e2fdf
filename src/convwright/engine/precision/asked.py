"""The requested precision of a network, and the attempts to reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from convwright import flags, torch_api
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.policy import Policy
from convwright.engine.network import Network
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.planes import Planes
from convwright.engine.precision.lowering import Lowering, Precision
from convwright.engine.precision.mixed import Mixed
from convwright.engine.precision.standard import GivenError, OwnError, Standard
from convwright.errors import BadInput
from convwright.naming import is_above_0

# How many times the network's allowed error each layer may have: errors of layers average out. If they do not, a
# smaller factor is tried. On a CPU oneDNN's packed convolutions sum in another order than PyTorch's own calls and
# err up to six times as much.
_LAYER_ERRORS = {"cpu": (4.0, 2.0, 1.0, 0.5), "cuda": (2.0, 1.0, 0.5)}
# PyTorch's own arithmetic where TF32 is off, which the last attempt is limited to. A layer whose sums are short may err
# by one roundoff, and products of split numbers do so where PyTorch errs by a fraction of it.
_UNSPLIT = frozenset(native_arithmetic(dtype, tf32=False) for dtype in DType)
# The share of the allowed error left for roundings. Kernels add their own errors.
_SHARES = (1.0, 0.5, 0.25, 0.0)
_MAX_OUTPUT_ERROR = 1e-3


class Attempt(NamedTuple):
    """A network precision, the limits of its layers, and what is computed in planes."""

    lowering: Lowering
    policy: Policy
    planes: Planes = Planes.FREE


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A requested precision, or None for the model's own. Samples and an error belong to "mixed"; each sample is the
    arguments of a call of the model."""

    precision: Precision | None = None
    samples: tuple[tuple[Any, ...], ...] = ()
    max_output_error: float = _MAX_OUTPUT_ERROR

    @classmethod
    def of(
        cls,
        precision: Precision | str | None,
        samples: Iterable[Any] | None,
        max_output_error: float | None,
        policy: Policy,
        *,
        partial: bool,
    ) -> Asked:
        """Check and convert the user's options."""
        known = None if precision is None else Precision.parse(precision)
        if known is not Precision.MIXED:
            for name, given in (("samples", samples), ("max_output_error", max_output_error)):
                if given is not None:
                    raise BadInput(f'`{name}` belongs to precision="mixed", got precision={precision!r}')
        elif partial:
            raise BadInput('precision="mixed" needs the whole model, which partial=True splits: leave out either')
        if known in (Precision.TF32, Precision.MIXED) and policy.arithmetic is not None:
            raise BadInput(
                f"precision={str(known)!r} and the policy's `arithmetic` both limit the arithmetic: leave out either"
            )
        error = _MAX_OUTPUT_ERROR if max_output_error is None else max_output_error
        if not is_above_0(error):
            raise BadInput(f"`max_output_error` must be a positive number, a relative L2 error, got {error!r}")
        if isinstance(samples, Tensor | Mapping | str) or not isinstance(samples, Iterable | None):
            raise BadInput(f"`samples` must be a list of samples, each like `example`, got a {type(samples).__name__}")
        every = tuple(each if isinstance(each, tuple) else (each,) for each in samples or ())
        if samples is not None and not every:
            raise BadInput("`samples` must hold at least one sample, got none")
        return cls(known, every, float(error))

    def standard(self, model: nn.Module, inputs: tuple[Any, ...], network: Network, policy: Policy) -> Standard:
        """The standard for an engine's outputs."""
        if self.precision is Precision.MIXED:
            return GivenError(network, self._like(inputs), self.max_output_error)
        return OwnError(model, inputs, network, self.precision, policy.max_error)

    def attempts(
        self,
        network: Network,
        inputs: tuple[Any, ...],
        policy: Policy,
        device: DeviceFacts,
        plan: Callable[[Lowering], Assignment] | None,
    ) -> Iterator[Attempt]:
        """Attempts in order, until outputs are accurate enough. ``plan`` is as in ``Mixed``."""
        if self.precision is Precision.MIXED:
            samples = [torch_api.flatten(each)[0] for each in self._like(inputs)]
            mixed = Mixed(network, samples, device, plan)
            tried = list[Lowering]()
            for share in _SHARES:
                lowering = mixed.within(share * self.max_output_error)
                if lowering not in tried:
                    tried.append(lowering)
                    yield Attempt(lowering, policy)
            return
        lowering = Lowering() if self.precision is None else Lowering.uniform(network.graph, self.precision)
        if plan is None:
            yield Attempt(lowering, policy)
            return
        of_layers = [replace(policy, max_error=layer * policy.max_error) for layer in _LAYER_ERRORS[device.kind]]
        for number, limited in enumerate(of_layers):
            yield Attempt(lowering, limited, Planes.SUMS if device.kind == "cpu" and number else Planes.FREE)
        if device.kind == "cpu":
            yield Attempt(lowering, of_layers[-1], Planes.ALL)
        allows_tf32 = lowering.tf32 is not None or flags.tf32_allowed() or flags.matmul_tf32_allowed()
        if device.kind == "cuda" and policy.arithmetic is None and not allows_tf32:
            yield Attempt(lowering, replace(of_layers[-1], arithmetic=_UNSPLIT))

    def _like(self, inputs: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
        """The samples, which must have the form of the example; the example itself if there are none."""
        wanted = _forms(inputs)
        for number, each in enumerate(self.samples):
            if _forms(each) != wanted:
                raise BadInput(f"sample {number} must be {_text(wanted)}, like the example, got {_text(_forms(each))}")
        return self.samples or (inputs,)


def _forms(inputs: tuple[Any, ...]) -> list[Any]:
    return [(each.dtype, tuple(each.shape), each.device) if isinstance(each, Tensor) else type(each).__name__
            for each in torch_api.flatten(inputs)[0]]  # fmt: skip


def _text(forms: Sequence[Any]) -> str:
    return ", ".join(form if isinstance(form, str) else " ".join(map(str, form)) for form in forms)
