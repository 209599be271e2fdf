"""Names of algorithms, checked before there is a problem that they could serve."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache

from convwright.backends import registry
from convwright.core.direction import Direction
from convwright.core.plan import Backend
from convwright.core.policy import Policy
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import between_commas
from convwright.rewrites import REWRITES
from convwright.tuning import listing

# cuDNN's algorithms by number, and its engines, of which there are as many as a version has.
_NUMBERED = re.compile(r"cudnn/(engine-)?\d{1,18}")
# PyTorch offers this one on a GPU alone, and says nothing of it on a CPU.
_ON_GPUS = ("torch/cudnn",)


def check_known(algorithm: str, argument: str) -> None:
    """Refuse a name that no algorithm has for any problem. ``argument`` is where the user has written it."""
    *around, inside = _from_outside(algorithm)
    for rewrite in (each.partition("(")[0] for each in around):
        names = [each.name for each in REWRITES if each.kind == "conv"]
        if rewrite not in names:
            raise BadInput(f"{argument}: no rewrite is called {rewrite!r}{_nearest(rewrite, names)}")
    leaf = inside.partition("[")[0]
    if not _is_known(leaf):
        names = sorted({*_of_users(), *(name for backend in registry.BACKENDS for name in _of_backend(backend))})
        raise BadInput(f"{argument}: no algorithm is called {leaf!r}{_nearest(leaf, names)}")


def _from_outside(algorithm: str) -> list[str]:
    """A name, what is inside its outermost rewrite, what is inside that, and so on."""
    found = ["".join(algorithm.split())]
    while found[-1].endswith(")") and "(" in found[-1]:
        found.append(between_commas(found[-1].partition("(")[2].removesuffix(")"))[-1])
    return found


def _is_known(leaf: str) -> bool:
    if _NUMBERED.fullmatch(leaf):
        return True
    backend, _, name = leaf.partition("/")
    if backend == registry.USER:
        return leaf in _of_users()
    if backend not in registry.BACKENDS or not name:
        return False
    # A kernel of ours has one algorithm for each arithmetic, whose names begin with its own.
    known = _of_backend(backend)
    return leaf in known or (backend == "triton" and any(leaf.startswith(f"{each}-") for each in known))


def _of_users() -> set[str]:
    kernels = registry.registered("conv")
    return set() if kernels is None else _offered(kernels)


@cache
def _of_backend(backend: str) -> frozenset[str]:
    return frozenset({*_offered(registry.backend(backend)), *(each for each in _ON_GPUS if each.startswith(backend))})


def _offered(member: Backend) -> set[str]:
    """What a backend offers or refuses in any direction, by name."""
    cpu, policy = device_facts("cpu"), Policy()
    tiny = listing.tiny(cpu)
    offers = (offer for each in Direction for offer in member.candidates(tiny.asking(each), cpu, policy))
    return {offer.id.partition("[")[0] for offer in offers}


def _nearest(name: str, names: list[str]) -> str:
    """The known name most like this one. A name without a backend is compared with the part after the slash."""
    by_word = {each if "/" in name else each.rpartition("/")[2]: each for each in reversed(names)}
    near = get_close_matches(name, by_word, n=1)
    return f"; the nearest is {by_word[near[0]]!r}" if near else f"; there are {', '.join(names)}"
