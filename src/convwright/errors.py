"""Every error that convwright raises on purpose: one sentence that says what was asked, expected and given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType

_OURS = Path(__file__).parent
_OTHERS = (Path(os.__file__).parent, _OURS)
_PACKAGES = {"site-packages", "dist-packages"}
_TOOLS = {"torch", "triton", "cudnn", "nvidia", "numpy"}


class ConvwrightError(Exception):
    """Base of all errors raised by convwright."""


class BadInput(ConvwrightError, ValueError):
    """The caller asked for something that cannot be; the sentence says what was expected and what was given."""


class BadCall(BadInput, RuntimeError):
    """The same of a call that PyTorch's own function refuses as well, with a ``RuntimeError``, whose first line stands
    at the end of the sentence."""


class BadArgument(BadInput, TypeError):
    """The same where PyTorch's is a ``TypeError``."""


class NothingLeft(BadInput):
    """Padding leaves nothing of a transposed convolution's output, which PyTorch takes for some dtypes and devices."""


class Refused(ConvwrightError, RuntimeError):
    """An algorithm was asked for by name and cannot serve the problem; the sentence carries its reason."""


class BackendError(ConvwrightError, RuntimeError):
    """A library underneath failed; its status is translated and the cause kept."""


class StepFailed(BackendError):
    """A step of an engine failed while it ran; the sentence names the step and what computes it."""

    def __init__(self, sentence: str, number: int) -> None:
        super().__init__(sentence)
        self.number = number  # of the step


class StoreError(ConvwrightError, RuntimeError):
    """The store of findings cannot be used as it is."""


class StoreWarning(UserWarning):
    """Findings are not kept where they were to be, and calls go on without; the sentence says why."""


class FailureWarning(UserWarning):
    """PyTorch computes a step of an engine from now on, since its kernel failed; the sentence says how."""


class IgnoredWarning(UserWarning):
    """What was asked for had no effect; the sentence says why, and what to do."""


class MemoryWarning(UserWarning):
    """A call is computed by another candidate than the chosen one, which has no memory; the sentence says why."""


def first_line(error: BaseException) -> str:
    """What an error says first, or its kind where it says nothing.

    >>> first_line(ValueError("no luck\\nat all")), first_line(KeyboardInterrupt())
    ('no luck', 'KeyboardInterrupt')
    """
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def in_words(error: BaseException) -> str:
    """The same of what somebody else's code raised, with its kind and the innermost line of that code.

    >>> in_words(ValueError("no luck\\nat all")), in_words(AssertionError())
    ('ValueError: no luck', 'AssertionError')
    """
    kind, said = type(error).__name__, first_line(error)
    words = said if said == kind else f"{kind}: {said}"
    place = None if isinstance(error, SyntaxError) else place_of(error)  # which says itself where it is
    return words if place is None else f"{words} ({place})"


def is_the_callers(error: BaseException) -> bool:
    """Whether the caller's own code raised an error, or that of a package, by itself or by what it called from ours."""
    inside: list[str] = []
    for traceback in _tracebacks(error):
        file = traceback.tb_frame.f_code.co_filename
        inside = [] if Path(file).is_relative_to(_OURS) else [*inside, file]
    return any(_is_of_the_caller(file) or _is_of_a_package(file) for file in inside)


def place_of(error: BaseException) -> str | None:
    """The innermost line that is neither Python's own, nor of an installed package, nor ours; None where none is."""
    place = None
    for traceback in _tracebacks(error):
        code = traceback.tb_frame.f_code
        if _is_of_the_caller(code.co_filename):
            function = "" if code.co_name.startswith("<") else f", in {code.co_name}"
            place = f"{Path(code.co_filename).name}, line {traceback.tb_lineno}{function}"
    return place


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    """From the outermost frame inwards."""
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_of_a_package(file: str) -> bool:
    """Whether code is installed and none that ours calls by itself."""
    parts = Path(file).parts
    return any(folder in _PACKAGES and name not in _TOOLS for folder, name in pairwise(parts))


def _is_of_the_caller(file: str) -> bool:
    path = Path(file)
    if file.startswith("<") or _PACKAGES.intersection(path.parts):  # text that was executed has no file
        return False
    return not any(path.is_relative_to(folder) for folder in _OTHERS)
