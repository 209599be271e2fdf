"""``learn``: measurements on a device → a model of its times."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from reprlib import repr as brief

from convwright import strict_json
from convwright.campaign import parquet
from convwright.core.device import DeviceFacts
from convwright.core.observation import Observation
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.prediction import models
from convwright.prediction.learning import Learned, versions_of
from convwright.prediction.learning import learn as fit
from convwright.store.store import Store
from convwright.tuning.session import using


def learn(
    observations: Iterable[Observation] | Path | str | None = None,
    *,
    device: str | DeviceFacts | None = None,
    store: Store | Path | str | None = None,
    out: Path | str | None = None,
) -> Learned:
    """A model of a device's times, and a report of its errors on problems that it had not seen.

    ``observations`` are records, or a file of them: Parquet as ``sample export`` writes it, or one JSON record in each
    line (which may end in .gz). The default is the records that ``sample`` and searches have put into ``store``. The
    model is written to the .npz file ``out``. By default it is put beside the store, where ``predict`` and the modes
    "predict" and "predict-top" look for it.

    Learning needs scikit-learn (``convwright[predict]``); predicting needs only numpy.
    """
    facts = device_facts(device)
    with using(store) as kept:
        if out is None and kept.path is None and kept.place is not None:
            raise BadInput("no model can be put beside a store on a server: name its file with `out` (`--out`)")
        if observations is None:
            known = list(kept.observations(device=facts.key))
        elif isinstance(observations, Path | str):
            known = list(read_observations(Path(observations)))
        elif not isinstance(observations, Iterable):
            raise BadInput(f"`observations` must be records or the path of a file of them, got {brief(observations)}")
        else:
            known = list(observations)
        learned = fit(known, facts, versions=versions_of(known))
        if out is None and kept.path is not None:
            out = models.folder_beside(kept.path) / models.file_name(facts)
    if out is not None:
        models.save(learned.predictor, out)
    return learned


def read_observations(path: Path) -> Iterator[Observation]:
    """The observations of a file: Parquet, or JSON with one in each line."""
    if path.suffix == parquet.SUFFIX:
        yield from parquet.read(path)
        return
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for number, line in enumerate(lines, 1):
                yield _observation(line, path, number)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        said = (error.strerror or error) if isinstance(error, OSError) else "it is damaged, or no text"
        raise BadInput(f"{path} cannot be read as observations: {said}") from error


def _observation(line: str, path: Path, number: int) -> Observation:
    try:
        return Observation.from_json(strict_json.loads(line))
    except (strict_json.JsonError, BadInput, TypeError, AttributeError) as error:
        raise BadInput(f"line {number} of {path} is no observation: {error}") from error
