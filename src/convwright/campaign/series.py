"""The tasks of a campaign: added to its claims in batches on demand, and claimed for one worker."""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import count, islice

from convwright.campaign.adaptive import most_informative
from convwright.campaign.campaign import MODE, Campaign
from convwright.campaign.drawn import Drawn
from convwright.campaign.problems import is_again, problem_at
from convwright.core.device import DeviceFacts
from convwright.core.predictor import Predictor
from convwright.store.claims import Claims
from convwright.store.store import Store

# The number of problems in a batch, and the number that an adaptive campaign draws for one.
_BATCH, _POOL = 64, 192
# Recent measurements show where predictions are wrong; reading more would take seconds.
_RECENT_S, _MOST_RECENT = 600.0, 500
# Tasks of a worker without a heartbeat for this long can be claimed by another.
STALE_S = 60.0


class Series:
    """A campaign's tasks on one kind of device, for all workers. Two campaigns of one name that draw different problems
    have different tasks. A batch that several workers add at once counts once."""

    def __init__(
        self, campaign: Campaign, device: DeviceFacts, store: Store, predictor: Predictor | None = None
    ) -> None:
        self.campaign, self.device = campaign, device
        name = f"{campaign.name} on {device.key}, {campaign.drawn_by}"
        self.claims = Claims(store, name)
        self._made = Claims(store, f"{name}: batches")  # one entry for each batch that was added
        self._store, self._predictor = store, predictor
        self._adding = threading.Lock()

    def claim(self, worker: str, most: int) -> list[Drawn]:
        """Take up to ``most`` tasks, which belong to ``worker`` while it sends heartbeats."""
        while not (claimed := self.claims.claim(worker, most, STALE_S)):
            self._add(seen=self._batches())
        return [Drawn.read(body) for _, body in claimed]

    def _batches(self) -> int:
        """The number of batches added by anybody."""
        return sum(self._made.counts().values())

    def _add(self, seen: int) -> None:
        """Add the next batch, unless another thread has done so meanwhile."""
        with self._adding:
            if self._batches() != seen:
                return
            batch = self._batch(seen)
            again = [
                Drawn(each.problem, each.origin, each.number, again=True)
                for each in batch
                if is_again(self.campaign, each.number)
            ]
            self.claims.add({each.name: each.text() for each in (*batch, *again)})
            self._made.add({f"{seen:06d}": ""})

    def _batch(self, place: int) -> list[Drawn]:
        size = _POOL if self.campaign.adaptive else _BATCH
        pool = [problem_at(self.campaign, self.device, place * size + number) for number in range(size)]
        if not self.campaign.adaptive or self._predictor is None:
            return pool[:_BATCH]
        after = time.time() - _RECENT_S
        recent = islice(self._store.observations(self.device.key, mode=MODE, after=after), _MOST_RECENT)
        return most_informative(pool, self._predictor, self.device, _BATCH, list(recent))


class Turns:
    """The tasks of one worker, one after the other, claimed a few at a time."""

    def __init__(self, series: Series, worker: str, *, most: int) -> None:
        self.series, self.worker = series, worker
        self._most = most
        self._claimed: deque[Drawn] = deque()

    def next(self) -> Drawn:
        if not self._claimed:
            self._claimed.extend(self.series.claim(self.worker, self._most))
        return self._claimed.popleft()


_lane_numbers = count()


def lane_number() -> int:
    """A different number for each worker of this process."""
    return next(_lane_numbers)
