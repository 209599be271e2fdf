"""Find the model for a device: the user's learned one beside the store, a shipped one, or the device's data sheet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from pathlib import Path

from convwright import strict_json
from convwright.core.device import DeviceFacts
from convwright.core.predictor import Predictor
from convwright.errors import BadInput
from convwright.prediction import time_model_file
from convwright.prediction.data_sheet import DATA_SHEET
from convwright.prediction.features import check_names
from convwright.prediction.learned_times import LearnedTimes
from convwright.prediction.power_model import PowerModel
from convwright.prediction.time_model import TimeModel
from convwright.strict_json import JsonError

FOLDER = "models"
_SUFFIX, _POWER = ".npz", ".power.json"


class Origin(StrEnum):
    """Where a model comes from."""

    GIVEN = "given"
    LEARNED = "learned"
    SHIPPED = "shipped"
    DATA_SHEET = "data sheet"


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """A predictor for one device. ``times`` is its model; the data sheet has none."""

    predictor: Predictor
    origin: Origin
    times: TimeModel | None = None
    path: Path | None = None

    def __str__(self) -> str:
        if self.times is None:
            return (
                "No model was learned of this device: times follow from its data sheet, and a measured time may differ "
                "by a factor of four."
            )
        error, other = self.times.error, self.times.versions.get("reference")
        transferred = "" if other is None else f", transferred from {other}"
        return (
            f"Times are predicted by a {self.origin} model of {self.times.rows:,} measured candidates{transferred}, "
            f"which was off by {error.median:.0%} (median) and {error.mape:.0%} (mean) on problems that it had not "
            "seen."
        )


def served(device: DeviceFacts, store: Path | None = None, model: Path | str | None = None) -> Served:
    """The model for a device: ``model``, else the one beside the file ``store``, else a shipped one, else none.

    >>> from convwright.core.profiles import profile
    >>> served(profile("h100")).origin, served(profile("a100")).origin
    (<Origin.SHIPPED: 'shipped'>, <Origin.DATA_SHEET: 'data sheet'>)
    """
    if model is not None:
        return _loaded(Path(model), Origin.GIVEN, device)
    beside = None if store is None else folder_beside(store) / file_name(device)
    if beside is not None and beside.is_file():
        return _loaded(beside, Origin.LEARNED, device)
    shipped = Path(str(resources.files(__package__) / FOLDER)) / file_name(device)
    if shipped.is_file():
        return _loaded(shipped, Origin.SHIPPED, device)
    return Served(DATA_SHEET, Origin.DATA_SHEET)


def folder_beside(store: Path) -> Path:
    """The folder for models learned from a store."""
    return store.parent / FOLDER


def file_name(device: DeviceFacts) -> str:
    """The file name of a device's model.

    >>> from convwright.core.profiles import profile
    >>> file_name(profile("h100"))
    'nvidia-h100-80gb-hbm3.npz'
    """
    return re.sub(r"[^a-z0-9]+", "-", device.key.lower()).strip("-") + _SUFFIX


def save(learned: LearnedTimes, path: Path | str) -> tuple[Path, ...]:
    """Write the model of times to ``path``, and the model of power, if any, to a file next to it. Returns the paths of
    all written files."""
    path = Path(path)
    if path.suffix != _SUFFIX:
        raise BadInput(f"a model's file must end in {_SUFFIX}, got {str(path)!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        time_model_file.save(learned.times, path)
        if learned.power is None:
            _power_of(path).unlink(missing_ok=True)
            return (path,)
        _power_of(path).write_text(strict_json.dumps(learned.power.to_json()) + "\n")
    except OSError as error:
        raise BadInput(f"the model cannot be written to {path}: {error}") from error
    return path, _power_of(path)


def _power_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_SUFFIX) + _POWER)


def _loaded(path: Path, origin: Origin, device: DeviceFacts) -> Served:
    times = _read(path, _stamp(path))
    if times.device != device.key:
        raise BadInput(f"{path} is a model of {times.device}, but times of {device.key} are needed: give another model")
    return Served(LearnedTimes(times, _power_read(_power_of(path), device)), origin, times, path)


def _power_read(path: Path, device: DeviceFacts) -> PowerModel | None:
    if not path.is_file():
        return None
    try:
        model = PowerModel.from_json(strict_json.loads(path.read_bytes()))
    except (OSError, JsonError, BadInput) as error:
        raise BadInput(f"{path} is not a model of power: {error}") from error
    if model.device != device.key:
        raise BadInput(f"{path} is a model of {model.device}, but power of {device.key} is needed: give another model")
    return model


def _stamp(path: Path) -> tuple[int, int]:
    """A value that changes when the file is written again."""
    try:
        known = path.stat()
    except OSError as error:
        raise BadInput(f"{path} cannot be read as a time model: {error}") from error
    return known.st_mtime_ns, known.st_size


@lru_cache(maxsize=8)
def _read(path: Path, stamp: tuple[int, int]) -> TimeModel:
    model = time_model_file.load(path)
    check_names(model.features, str(path))
    return model
