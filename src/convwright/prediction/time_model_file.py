"""A time model as one file: arrays in numpy's .npz with a strict JSON header. Nothing in it is executed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from convwright import strict_json
from convwright.errors import BadInput
from convwright.prediction.boosted_trees import BoostedTrees
from convwright.prediction.domain import Domain
from convwright.prediction.intervals import ConformalIntervals
from convwright.prediction.learned_rates import LearnedRates
from convwright.prediction.smooth_correction import SmoothCorrection
from convwright.prediction.time_model import SCHEMA, Correction, MeasuredError, TimeModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADER, _TREES, _RATES, _SMOOTH, _DOMAIN = "header", "trees.", "rates.", "smooth.", "domain."


def save(model: TimeModel, path: Path | str) -> None:
    """Write one .npz file under exactly this name."""
    import numpy as np

    rough, smooth = model.correction.rough, model.correction.smooth
    header = {
        "schema": SCHEMA,
        "device": model.device,
        "versions": dict(model.versions),
        "features": list(model.features),
        "rows": model.rows,
        "error": asdict(model.error),
        "intervals": model.intervals.to_json(),
        "trees": rough.to_json() if isinstance(rough, BoostedTrees) else None,
        "smooth": smooth.to_json(),
        "domain": model.domain.to_json(),
    }
    prefix = _TREES if isinstance(rough, BoostedTrees) else _RATES
    arrays = {prefix + name: array for name, array in rough.to_arrays().items()}
    arrays |= {_SMOOTH + name: array for name, array in smooth.to_arrays().items()}
    arrays |= {_DOMAIN + name: array for name, array in model.domain.to_arrays().items()}
    arrays[_HEADER] = np.frombuffer(strict_json.dumps(header).encode(), dtype=np.uint8)
    with Path(path).open("wb") as file:  # given a name, numpy would append .npz
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load(path: Path | str) -> TimeModel:
    """The model that ``save`` wrote."""
    import numpy as np

    try:
        with Path(path).open("rb") as opened, np.lib.npyio.NpzFile(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise BadInput(f"{path} cannot be read as a time model: {error}") from error
    except (BadZipFile, EOFError, ValueError) as error:
        raise BadInput(f"{path} is not a time model: a .npz file of plain arrays was expected") from error
    header = _header(arrays, path)
    try:
        error_ = MeasuredError(**header["error"])
        features, rows = tuple(map(str, header["features"])), int(header["rows"])
        versions = {str(name): str(version) for name, version in header["versions"].items()}
        device, domain, intervals = (header[name] for name in ("device", "domain", "intervals"))
        trees, smooth = header["trees"], header["smooth"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is not a time model: its header lacks fields of {SCHEMA!r}") from error
    model = TimeModel(
        str(device),
        features,
        Correction(
            LearnedRates.from_arrays(_under(arrays, _RATES))
            if trees is None
            else BoostedTrees.from_arrays(_under(arrays, _TREES), trees),
            SmoothCorrection.from_arrays(_under(arrays, _SMOOTH), smooth),
        ),
        ConformalIntervals.from_json(intervals),
        Domain.from_arrays(_under(arrays, _DOMAIN), domain),
        error_,
        rows,
        versions,
    )
    read = {
        "trees or rates": model.correction.rough.features, "a smooth function": model.correction.smooth.features,
        "a domain": len(model.domain.centre),
    }  # fmt: skip
    if set(read.values()) != {len(features)}:
        of = ", ".join(f"{name} of {count}" for name, count in read.items())
        raise BadInput(f"{path} is not a time model: {len(features)} names of features, {of}")
    return model


def _header(arrays: dict[str, NDArray[Any]], path: Path | str) -> dict[str, Any]:
    if _HEADER not in arrays:
        raise BadInput(f"{path} is not a time model: it has no header")
    try:
        header = strict_json.loads(arrays[_HEADER].tobytes())
    except strict_json.JsonError as error:
        raise BadInput(f"{path} is not a time model: its header is not strict JSON: {error}") from error
    schema = header.get("schema") if isinstance(header, dict) else None
    if schema != SCHEMA:
        raise BadInput(
            f"{path} must have the schema {SCHEMA!r}, got {schema!r}: learn it again with `convwright learn`"
        )
    known: dict[str, Any] = header
    return known


def _under(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
