"""What cuDNN writes into its diagnostic log about a call that it refuses, and what of that is a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Read when cuDNN is loaded, and only then: it takes a process of its own to have it.
LOG_ENVIRONMENT = {
    "CUDNN_LOGERR_DBG": "1",
    "CUDNN_LOGWARN_DBG": "1",
    "CUDNN_LOGINFO_DBG": "0",
    "CUDNN_LOGLEVEL_DBG": "2",
    "CUDNN_LOGDEST_DBG": "stderr",
}

# An entry is one call of ours. Each line in it is a check of cuDNN's that failed, the innermost first; one that was
# broken goes on without the mark in front.
_ENTRY = re.compile(r"^[WE]! CuDNN .*$", re.MULTILINE)
_LINE = re.compile(r"^[we]!\s+(?:Warning|Error): (?P<status>CUDNN_STATUS_\w+); Reason: ")
_MARKED = re.compile(r"^[weWE]!")
_SUCCESS = "CUDNN_STATUS_SUCCESS"
_ADDRESSES = re.compile(r"\s*\([^()]*\b0x[0-9a-f]+[^()]*\)")
_PARENTHESES = re.compile(r"\([^()]*\)")
_NAME = re.compile(r"[\w.:\[\]]+")


def failed_conditions(log: str) -> tuple[str, ...]:
    """The conditions that the last refused call of ``log`` failed on, the deepest cause first, each once.

    Nothing where cuDNN names none, as where an engine is for another architecture.

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
    """What an entry gives as reasons, each on one line."""
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
    """A line without what only cuDNN's makers can read; None where it only says who handed a failure on."""
    words, at, condition = _ADDRESSES.sub("", line).partition(" at: ")
    if at:
        # "true" is what stands there where the words say it all.
        return words if condition == "true" else f"{words} ({condition})"
    return None if _handed_on(words) else words


def _handed_on(text: str) -> bool:
    """Whether a check is of another's status: a call or a variable with nothing that it is compared to.

    >>> _handed_on("engine_iface->getStatus()"), _handed_on("!is_NHWC"), _handed_on("f(x) != 0")
    (True, False, False)
    """
    if "CUDNN_STATUS_" in text:
        return True
    bare, before = text.replace("->", "."), ""
    while bare != before:
        bare, before = _PARENTHESES.sub("", bare), bare
    return _NAME.fullmatch(bare) is not None
