"""Sample inputs for calibrating a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from convwright.engine.capture.example import Subject
from convwright.engine.capture.trails import tensors_in
from convwright.engine.capture.unchanged import unchanged, unwritten
from convwright.errors import BadInput, ConvwrightError, in_words

Hook = Callable[[Tensor, Tensor], None]


class Samples:
    """All inputs, read once and kept, and runs of a model over them. ``tell`` is called for each run of a sample."""

    def __init__(self, given: Iterable[Any], tell: Callable[[str], None]) -> None:
        if isinstance(given, Tensor | Mapping | str) or not isinstance(given, Iterable):
            raise BadInput(
                "`samples` must be an iterable of inputs, each a tensor, a tuple of arguments or a dict of keyword "
                f"arguments, got {type(given).__name__}"
            )
        self._inputs, self._tell = list(given), tell
        if not self._inputs:
            raise BadInput("`samples` must hold at least one input, got none")
        for number in range(len(self)):
            _check_finite(number, self.subject(nn.Identity(), number))

    def __len__(self) -> int:
        return len(self._inputs)

    def subject(self, model: nn.Module, number: int) -> Subject:
        """The model and one sample."""
        try:
            return Subject.of(model, self._inputs[number])
        except BadInput as error:
            raise BadInput(f"sample {number}: {str(error).replace('`example`', 'it')}") from None

    def run(self, model: nn.Module, what: str, hooks: Mapping[nn.Module, Hook] | None = None) -> list[list[Tensor]]:
        """Run all samples without gradients and restore the model. Each function in ``hooks`` gets the input and the
        output of every call of its module.

        Returns the floating-point tensors of the results, sample by sample.
        """
        kept = [module.register_forward_hook(_hooked(hook), with_kwargs=True) for module, hook in (hooks or {}).items()]
        results = []
        try:
            with unchanged(model), torch.no_grad():
                for number in range(len(self)):
                    self._tell(f"{what}, sample {number}")
                    results.append(self._results(self.subject(model, number), number, what))
        finally:
            for handle in kept:
                handle.remove()
        return results

    def _results(self, subject: Subject, number: int, what: str) -> list[Tensor]:
        try:
            with unwritten(subject.given()):
                return [tensor.clone() for tensor in tensors_in((subject(),)) if tensor.is_floating_point()]
        except ConvwrightError:
            raise
        except Exception as error:
            raise BadInput(f"the model does not run on sample {number} ({what}): {in_words(error)}") from error


def _hooked(hook: Hook) -> Callable[..., None]:
    def called(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        hook(args[0] if args else kwargs["input"], output)

    return called


def _check_finite(number: int, subject: Subject) -> None:
    for tensor in subject.given():
        if tensor.is_meta:
            raise BadInput(f'sample {number} is on "meta", where it has no values to calibrate with: give real tensors')
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise BadInput(f"sample {number} holds a NaN or an infinity, which int8 cannot represent: leave it out")
