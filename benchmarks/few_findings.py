"""How well our kernels are ranked after few findings: by estimates, by estimates that a regression corrects, as
searches do, and by learned trees.

    OMP_NUM_THREADS=1 python benchmarks/few_findings.py OBSERVATIONS.jsonl.gz [--device h200] [--repeats 5]

Some findings of random problems are known. For each other problem, the best four kernels by prediction are held against
the best of all that were timed: how much longer they take. Nothing is measured here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy import float64
from numpy.typing import NDArray

from convwright.campaign.learning import read_observations
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.profiles import profile
from convwright.prediction.boosted_trees import fit_boosted_trees
from convwright.prediction.corrections import fitted, seen_of
from convwright.prediction.features import features, vocabulary
from convwright.prediction.learning import Samples, samples, settings_for

_LOOKED_AT, _FEWEST_KERNELS = 4, 8
_KNOWN = (24, 60, 150, 400, 1000)
Column = NDArray[float64]
Ranking = Callable[[Samples, Sequence[Candidate], DeviceFacts], Column]


def by_estimates(known: Samples, asked: Sequence[Candidate], device: DeviceFacts) -> Column:
    """What the kernels' tiles say."""
    return np.array([each.estimated_us for each in asked], dtype=np.float64)


def by_regression(known: Samples, asked: Sequence[Candidate], device: DeviceFacts) -> Column:
    """The same, corrected as searches do."""
    pairs = zip(known.candidates, known.measured_us.tolist(), strict=True)
    corrected = fitted([seen for candidate, us in pairs if (seen := seen_of(candidate, us)) is not None])
    predictions = corrected.predict_all(asked, device)
    return np.array([np.inf if each is None else each.time_us.value for each in predictions])


def by_trees(known: Samples, asked: Sequence[Candidate], device: DeviceFacts) -> Column:
    """Physics corrected by learned trees."""
    names = vocabulary(known.candidates)
    shown, wanted = features(known.candidates, device, names), features(asked, device, names)
    targets = np.log(known.measured_us / shown.physics_us)
    trees = fit_boosted_trees(shown.rows, targets, settings_for(len(targets)))
    times: Column = wanted.physics_us * np.exp(trees.predict(wanted.rows))
    return times


RANKINGS: dict[str, Ranking] = {"estimates": by_estimates, "regression": by_regression, "trees": by_trees}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("observations", type=Path, nargs="+")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    device = profile(options.device)
    everything = samples((each for path in options.observations for each in read_observations(path)), device)
    is_ours = [each.backend == "triton" and each.estimated_us is not None for each in everything.candidates]
    ours = everything.of(np.flatnonzero(np.array(is_ours)))
    problems = np.array([each.problem.key for each in ours.candidates])
    print(f"{len(ours):,} timed kernels of {len(np.unique(problems))} problems on {device.name}")
    print(f"{'known findings':>15} {'problems':>9} " + " ".join(f"{name:>11}" for name in RANKINGS))
    for count in _KNOWN:
        lost: dict[str, list[float]] = {name: [] for name in RANKINGS}
        for seed in range(options.repeats):
            _try(ours, problems, count, seed, device, lost)
        means = {name: float(np.exp(np.mean(np.log(each)))) - 1 for name, each in lost.items()}
        print(f"{count:15,} {len(lost['trees']):9,} " + " ".join(f"{means[name]:11.1%}" for name in RANKINGS))


def _try(
    ours: Samples, problems: NDArray[np.str_], count: int, seed: int, device: DeviceFacts, lost: dict[str, list[float]]
) -> None:
    """Findings of problems in a random order until there are enough of them; the others are ranked, one of each
    origin that is not known."""
    order = np.random.default_rng(seed).permutation(np.unique(problems))
    known = list[int]()
    for problem in order:
        if len(known) >= count:
            break
        known += np.flatnonzero(problems == problem).tolist()
    rows = np.array(known[:count])
    predicted = {name: each(ours.of(rows), ours.candidates, device) for name, each in RANKINGS.items()}
    seen = {str(each) for each in ours.origins[rows]}
    for problem in order:
        here = np.flatnonzero(problems == problem)
        origin = str(ours.origins[here[0]])
        if len(here) < _FEWEST_KERNELS or origin in seen:
            continue
        seen.add(origin)
        for name, times in predicted.items():
            first = here[np.argsort(times[here], kind="stable")[:_LOOKED_AT]]
            lost[name].append(float(ours.measured_us[first].min() / ours.measured_us[here].min()))


if __name__ == "__main__":
    main()
