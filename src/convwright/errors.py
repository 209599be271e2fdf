"""Every error that convwright raises on purpose: one sentence that says what was asked, expected and given."""

from __future__ import annotations


class ConvwrightError(Exception):
    """Base of all errors raised by convwright."""


class BadInput(ConvwrightError, ValueError):
    """The caller asked for something that cannot be; the sentence says what was expected and what was given."""


class NothingLeft(BadInput):
    """Padding leaves nothing of a transposed convolution's output, which PyTorch takes for some dtypes and devices."""


class Refused(ConvwrightError, RuntimeError):
    """An algorithm was asked for by name and cannot serve the problem; the sentence carries its reason."""


class BackendError(ConvwrightError, RuntimeError):
    """A library underneath failed; its status is translated and the cause kept."""


class StoreError(ConvwrightError, RuntimeError):
    """The store of findings cannot be used as it is."""


class StoreWarning(UserWarning):
    """Findings are not kept where they were to be, and calls go on without; the sentence says why."""


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
    """The same of what somebody else's code raised, with its kind; nothing of its traceback.

    >>> in_words(ValueError("no luck\\nat all")), in_words(AssertionError())
    ('ValueError: no luck', 'AssertionError')
    """
    kind, said = type(error).__name__, first_line(error)
    return said if said == kind else f"{kind}: {said}"
