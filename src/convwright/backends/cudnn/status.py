"""cuDNN's statuses as sentences."""

from __future__ import annotations

SUCCESS = 0

# A status is a family (its thousands) and a special case. Cases that say no more than their family are left out, and so
# are unknown ones of a newer cuDNN.
_FAMILIES = {
    1: "cuDNN could not start",
    2: "cuDNN was given a bad parameter",
    3: "cuDNN does not support this",
    4: "cuDNN had an internal error",
    5: "the computation failed on the device",
}
_WORDS = {
    0: "cuDNN succeeded",
    1001: "cuDNN could not start: it finds no working device or driver, or no memory there",
    1002: "cuDNN's libraries are of different versions",
    1003: "cuDNN was given data of another version",
    1004: "cuDNN no longer has this function",
    1007: "cuDNN had an overflow at run time",
    1008: "cuDNN could not load one of its libraries",
    2001: "cuDNN was given an invalid value",
    2002: "cuDNN was given a null pointer",
    2003: "cuDNN was given a pointer that is not aligned well enough",
    2004: "cuDNN was given a descriptor that is not finished",
    2005: "cuDNN was given an index out of range",
    2006: "cuDNN was given too little memory",
    2007: "cuDNN was given a handle of another stream",
    2008: "cuDNN was given shapes that do not match",
    2009: "cuDNN was given an entry twice",
    2010: "cuDNN was given an attribute of the wrong type",
    2011: "cuDNN was given a CUDA graph that does not match",
    2012: "cuDNN was given a descriptor of the wrong type",
    3001: "cuDNN does not support this combination of operations",
    3002: "cuDNN does not support this shape",
    3003: "cuDNN does not support this dtype",
    3004: "cuDNN does not support this layout",
    3005: "cuDNN does not support this driver",
    3006: "cuDNN does not support this CUDA runtime",
    3007: "cuDNN does not support this architecture",
    3008: "cuDNN lacks something that it needs at run time",
    3009: "cuDNN does not support this without one of its libraries",
    3010: "cuDNN would need more shared memory than the device has",
    3011: "cuDNN does not support this padding",
    3012: "cuDNN cannot launch this on the device",
    3013: "cuDNN does not support this inside a CUDA graph",
    3014: "cuDNN does not support this dynamic shape",
    4001: "cuDNN could not compile its kernel",
    4002: "cuDNN had an unexpected value",
    4003: "cuDNN could not allocate host memory",
    4004: "cuDNN could not allocate device memory",
    4005: "cuDNN launched a kernel with bad parameters",
    4006: "cuDNN could not create a texture",
    5001: "the computation failed on the device, in the CUDA driver",
    5002: "the computation failed on the device, in cuBLAS",
    5003: "the computation failed on the device, in the CUDA runtime",
    5004: "the computation failed on the device, in cuRAND",
}


def explain(status: int, own_words: str = "") -> str:
    """One sentence for ``status``; ``own_words`` is cuDNN's own text about it.

    >>> explain(3004)
    'cuDNN does not support this layout (status 3004)'
    >>> explain(2000, "dimA[i] <= 0")
    'cuDNN was given a bad parameter (status 2000: dimA[i] <= 0)'
    """
    words = _WORDS.get(status) or _FAMILIES.get(status // 1000, "cuDNN returned an unknown status")
    # cuDNN ends some sentences with a line break and spreads conditions over several lines.
    own = " ".join(own_words.split())
    return f"{words} (status {status}: {own})" if own else f"{words} (status {status})"
