"""What somebody else's code raised, as a part of one sentence."""

from __future__ import annotations


def in_words(error: Exception) -> str:
    """The first line of an error with its kind; nothing of its traceback.

    >>> in_words(ValueError("no luck\\nat all")), in_words(AssertionError())
    ('ValueError: no luck', 'AssertionError')
    """
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
