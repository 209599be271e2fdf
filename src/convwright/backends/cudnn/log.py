"""Reasons from cuDNN's diagnostic log for a refused call."""

from __future__ import annotations

import re
from collections.abc import Iterator

# cuDNN reads these once, when it is loaded, so the log needs a separate process.
LOG_ENVIRONMENT = {
    "CUDNN_LOGERR_DBG": "1",
    "CUDNN_LOGWARN_DBG": "1",
    "CUDNN_LOGINFO_DBG": "0",
    "CUDNN_LOGLEVEL_DBG": "2",
    "CUDNN_LOGDEST_DBG": "stderr",
}

# One entry is one call. Each line in it is a failed check of cuDNN, the innermost first. A wrapped line continues
# without the mark.
_ENTRY = re.compile(r"^[WE]! CuDNN .*$", re.MULTILINE)
_LINE = re.compile(r"^[we]!\s+(?:Warning|Error): (?P<status>CUDNN_STATUS_\w+); Reason: ")
_MARKED = re.compile(r"^[weWE]!")
_SUCCESS = "CUDNN_STATUS_SUCCESS"
_ADDRESSES = re.compile(r"\s*\([^()]*\b0x[0-9a-f]+[^()]*\)")
_PARENTHESES = re.compile(r"\([^()]*\)")
_NAME = re.compile(r"[\w.:\[\]]+")


def failed_conditions(log: str) -> tuple[str, ...]:
    """The conditions that the last refused call in ``log`` failed, the deepest cause first, without duplicates.

    Empty if cuDNN names none, for example for an engine of another architecture.

    >>> failed_conditions('''W! CuDNN (v91900 56) function cudnnBackendFinalize() called:
    ... w!     Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: 'c' per group must be 1 at: wDesc->dimA[1] != 1
    ... w!     Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: ptr->isSupported()
    ... w! Process=1; Thread=1; GPU=NULL; Handle=NULL; StreamId=NULL.
    ... ''')
    ("'c' per group must be 1 (wDesc->dimA[1] != 1)",)
    """
    refused = [lines for entry in _ENTRY.split(log)[1:] if (lines := list(_failures(entry)))]
    said = (_condition(line) for line in refused[-1]) if refused else ()
    return tuple(dict.fromkeys(condition for condition in said if condition is not None))


def _failures(entry: str) -> Iterator[str]:
    """The reasons in an entry, each on one line."""
    text: str | None = None
    for line in entry.splitlines():
        begun = _LINE.match(line)
        if text is not None and (begun or _MARKED.match(line) or not line.strip()):
            yield text
            text = None
        if begun:
            text = None if begun["status"] == _SUCCESS else line[begun.end() :].strip()
        elif text is not None:
            text += f" {line.strip()}"
    if text is not None:
        yield text


def _condition(line: str) -> str | None:
    """A line without cuDNN's internal details; None if it only passes a failure on."""
    words, at, condition = _ADDRESSES.sub("", line).partition(" at: ")
    if at:
        # The condition is "true" where the words are complete.
        return words if condition == "true" else f"{words} ({condition})"
    return None if _handed_on(words) else words


def _handed_on(text: str) -> bool:
    """Whether a check tests another call's status: a call or a variable that is not compared with anything.

    >>> _handed_on("engine_iface->getStatus()"), _handed_on("!is_NHWC"), _handed_on("f(x) != 0")
    (True, False, False)
    """
    if "CUDNN_STATUS_" in text:
        return True
    bare, before = text.replace("->", "."), ""
    while bare != before:
        bare, before = _PARENTHESES.sub("", bare), bare
    return _NAME.fullmatch(bare) is not None
