"""The sequence of problems of a campaign. The problem at each place is always the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import exp, log
from random import Random

from convwright.campaign.bounds import MOST_US, fits, usual_us
from convwright.campaign.campaign import Campaign
from convwright.campaign.drawn import Drawn
from convwright.campaign.network_layers import network_layer
from convwright.campaign.other_kinds import other_problem
from convwright.campaign.random_convolutions import one_by_share, random_convolution
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.errors import BadInput
from convwright.naming import between_commas

# The most draws until one fits. If none fits, the device is too small for the source.
_MOST_DRAWS = 1000
# Log-uniform sizes give mostly tiny problems. So a time is drawn first, and of _CHOICE problems the one closest to it
# is taken.
_CHOICE, _LEAST_US = 4, 2.0


def _random(random: Random, device: DeviceFacts) -> tuple[Problem, str]:
    return random_convolution(random, device), ""


_SOURCES: Mapping[str, Callable[[Random, DeviceFacts], tuple[Problem, str]]] = {
    "random": _random, "networks": network_layer, "kinds": other_problem,
}  # fmt: skip
SHARES = (("random", 0.5), ("networks", 0.3), ("kinds", 0.2))


def shares_of(given: str | Iterable[str] | Mapping[str, float] | None) -> tuple[tuple[str, float], ...]:
    """Shares in the user's notation. Sources without a number get equal shares.

    >>> shares_of("random=3,kinds=1"), shares_of(["networks", "kinds"])
    ((('random', 3.0), ('kinds', 1.0)), (('networks', 1.0), ('kinds', 1.0)))
    """
    if given is None:
        return SHARES
    pairs = _pairs(given)
    for name, share in pairs.items():
        if name not in _SOURCES:
            raise BadInput(f"a source of problems is one of {', '.join(_SOURCES)}, got {name!r}")
        if not (isinstance(share, int | float) and 0 <= share < float("inf")):
            raise BadInput(f"the share of {name} must be a finite number that is not negative, got {share!r}")
    if not sum(pairs.values()):
        raise BadInput("at least one source of problems must have a share above 0")
    return tuple((name, float(share)) for name, share in pairs.items())


def _pairs(given: str | Iterable[str] | Mapping[str, float]) -> dict[str, float]:
    if isinstance(given, Mapping):
        return dict(given)
    words = between_commas(given) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if not words or not all(isinstance(word, str) for word in words):
        raise BadInput(f'`sources` must be names, such as ["random"], or shares, as in {{"random": 2}}, got {given!r}')
    return dict(map(_pair, words))


def _pair(word: str) -> tuple[str, float]:
    name, equals, share = word.partition("=")
    try:
        return name.strip(), float(share) if equals else 1.0
    except ValueError:
        raise BadInput(f"a source is written name or name=share, for example random=2, got {word!r}") from None


def problem_at(campaign: Campaign, device: DeviceFacts, number: int) -> Drawn:
    """The problem at this place of the sequence.

    >>> campaign, device = Campaign("c", 0, SHARES), DeviceFacts("a CPU", "cpu", "any", threads=1)
    >>> problem_at(campaign, device, 5) == problem_at(campaign, device, 5)
    True
    """
    random = Random(f"{campaign.seed} {number}")
    source = one_by_share(random, dict(campaign.shares))
    wanted_us = exp(random.uniform(log(_LEAST_US), log(MOST_US)))
    choice = [_drawn(random, source, device, number) for _ in range(_CHOICE)]
    return min(choice, key=lambda drawn: abs(log(max(usual_us(drawn.problem, device), 1e-3) / wanted_us)))


def _drawn(random: Random, source: str, device: DeviceFacts, number: int) -> Drawn:
    for _ in range(_MOST_DRAWS):
        try:
            problem, part = _SOURCES[source](random, device)
        except BadInput:  # for example a window larger than its image
            continue
        if problem.output.numel and fits(problem, device):
            return Drawn(problem, f"{source}:{part}" if part else source, number)
    raise BadInput(f"no problem of the source {source!r} fits on {device.name}: choose other sources")


def is_again(campaign: Campaign, number: int) -> bool:
    """Whether the problem at this place is measured again."""
    return Random(f"{campaign.seed} {number} again").random() < campaign.repeat
