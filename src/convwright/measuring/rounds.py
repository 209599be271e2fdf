"""Rounds: time every call at several sample lengths, in random order, until the times are precise enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from random import Random
from statistics import median

from convwright.measuring.clock import Clock
from convwright.measuring.compare import beyond_tie
from convwright.measuring.disturbances.throttle import Watch
from convwright.measuring.regression import median_interval, paired_ratio
from convwright.measuring.subject import FEWEST_ROUNDS, FIRST_LOOK, Subject


class Rounds:
    """All rounds of one run. ``slowed`` gives the reason why the device was slow in each round, or None."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        clock: Clock,
        watch: Watch,
        random: Random,
        *,
        fewest: int = FEWEST_ROUNDS,
    ) -> None:
        self.slowed: list[str | None] = []
        self._subjects, self._clock, self._watch, self._random = subjects, clock, watch, random
        # Work before the calls that subjects share is timed once a round.
        parts = (part for subject in subjects for part in (subject.series, subject.before) if part is not None)
        self._series = list({id(part): part for part in parts}.values())
        self._samples = [(part, n) for part in self._series for n in part.sizes]
        self._done, self._fewest = 0, fewest

    @property
    def undisturbed(self) -> list[int]:
        return [index for index, reason in enumerate(self.slowed) if reason is None]

    @property
    def counting(self) -> list[int]:
        """The rounds that count: the undisturbed ones, or all if those are too few."""
        undisturbed = self.undisturbed
        return undisturbed if len(undisturbed) >= FEWEST_ROUNDS else list(range(len(self.slowed)))

    @property
    def all_disturbed(self) -> bool:
        """True if the rounds that count are disturbed ones."""
        return len(self.undisturbed) < FEWEST_ROUNDS

    def run(self, end_us: float, precision: float, progress: Callable[[float], object]) -> None:
        """Run rounds until all times are known to ± ``precision`` / 2, or another would not end before ``end_us``."""
        first_us = seen_us = self._clock.now_us()
        look = FIRST_LOOK
        while True:
            begun_us = self._clock.now_us()
            self._round()
            now_us = self._clock.now_us()
            progress(min((now_us - first_us) / max(end_us - first_us, 1.0), 1.0))
            last = self._done >= self._fewest and now_us + (now_us - begun_us) > end_us
            looking = self._done >= look
            if last or looking or now_us - seen_us >= self._watch.every_us:
                self._judge()
                seen_us = now_us
            if last:
                return
            if looking:
                # Checking after each round would stop at the first interval that is narrow by luck.
                look = ceil(self._done * 1.25)
                if self._settled(precision):
                    return

    def _round(self) -> None:
        self._random.shuffle(self._samples)
        taken = {(id(part), n): self._clock.time_us(part.call, n) for part, n in self._samples}
        for part in self._series:
            part.add(tuple(taken[id(part), n] for n in part.sizes))
        self._done += 1

    def _judge(self) -> None:
        """Decide for the rounds since the last check whether the device was slowed down."""
        self.slowed += [self._watch.slowed()] * (self._done - len(self.slowed))

    def _settled(self, precision: float) -> bool:
        rounds = self.undisturbed
        if len(rounds) < FIRST_LOOK:
            return False
        slopes = [subject.slopes_us(rounds) for subject in self._subjects]
        if any(median_interval(each).relative_halfwidth > precision / 2 for each in slopes):
            return False
        fastest = min(slopes, key=median)
        ratios = (paired_ratio(each, fastest) for each in slopes if each is not fastest)
        return all(beyond_tie(ratio) or ratio.relative_halfwidth <= precision / 2 for ratio in ratios)
