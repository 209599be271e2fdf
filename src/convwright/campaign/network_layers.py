"""Draw layers of real networks, and their neighbours: the same layer with one size changed."""

from __future__ import annotations

from functools import cache
from random import Random

from convwright import suites
from convwright.campaign.random_convolutions import dtype_for, one_by_share, random_epilogue
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.suites.suite import Row

_SUITES = {"zoo": 0.7, "deepbench": 0.2, "msd": 0.1}
_BATCHES = (1, 1, 2, 8, 16, 32, 64, 128)
_DIRECTIONS = {Direction.FORWARD: 0.6, Direction.BACKWARD_DATA: 0.2, Direction.BACKWARD_WEIGHT: 0.2}
# How often a layer is taken unchanged.
_AS_IT_IS = 0.5
_FACTORS = (0.5, 0.75, 1.5, 2.0)


def network_layer(random: Random, device: DeviceFacts) -> tuple[ConvProblem, str]:
    """A layer or its neighbour, and the network that it is from. Raises ``BadInput`` if the neighbour is invalid."""
    suite = one_by_share(random, _SUITES)
    row = random.choice(_rows(suite))
    layer = row.problem
    batch = layer.n if layer.n > 1 else random.choice(_BATCHES)
    sizes = [batch, layer.c, layer.k, *layer.x.shape[2:]]
    if random.random() >= _AS_IT_IS:
        _change(random, sizes, layer.groups)
    n, c, k, *image = sizes
    direction = one_by_share(random, _DIRECTIONS)
    problem = ConvProblem.of(
        (n, c, *image),
        (k, c // layer.groups, *layer.taps),
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        dtype=dtype_for(random, device),
        layout=random.choice((Layout.NCHW, Layout.NHWC)),
        direction=direction,
        epilogue=random_epilogue(random, direction),
    )
    return problem, _network(suite, row)


def _change(random: Random, sizes: list[int], groups: int) -> None:
    """Change one size by one or by a factor. Channels stay a multiple of the groups."""
    place = random.randrange(len(sizes))
    step = groups if place in (1, 2) else 1
    size = sizes[place] // step
    changed = size + random.choice((-1, 1)) if random.random() < 0.5 else round(size * random.choice(_FACTORS))
    sizes[place] = max(changed, 1) * step


def _network(suite: str, row: Row) -> str:
    """The network of a row: rows of the zoo are named by network and layer number."""
    return row.name.rpartition("-")[0] if suite == "zoo" else suite


@cache
def _rows(suite: str) -> tuple[Row, ...]:
    return suites.load(suite).rows
