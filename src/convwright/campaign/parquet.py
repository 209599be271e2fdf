"""Observations as an Apache Parquet file, one row each, for other programs and for reading back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from convwright.campaign.rows import COLUMNS, observation_of, row_of
from convwright.core.observation import SCHEMA, Observation
from convwright.errors import BadInput

SUFFIX = ".parquet"
# Rows in memory at once.
_AT_ONCE = 2000
_KEY = b"convwright"


def check_target(path: Path | str) -> None:
    """Refuse a file that would not look like what it holds."""
    target = Path(path)
    if target.is_dir():
        raise BadInput(f"{target} is a folder: name a file in it, such as {target / 'observations.parquet'}")
    if not target.parent.is_dir():
        raise BadInput(f"there is no folder {str(target.parent)!r} for {target.name!r}: create it first")
    if target.suffix != SUFFIX:
        raise BadInput(f"observations are written as Apache Parquet: the file must end in {SUFFIX}, got {str(path)!r}")


def write(observations: Callable[[], Iterable[Observation]], path: Path | str) -> int:
    """Write all observations; returns how many. An existing file is replaced when all are written.

    They are read twice, since their number is not limited: the origin of a failed candidate's problem is only in other
    observations.
    """
    check_target(path)
    arrow, parquet = _libraries()
    target, count = Path(path), 0
    part = target.with_name(f"{target.name}.part")
    schema, origins = _schema(arrow), _origins(observations())
    try:
        with parquet.ParquetWriter(part, schema, compression="zstd", compression_level=9) as file:
            left = iter(observations())
            while some := list(islice(left, _AT_ONCE)):
                rows = [_with_origin(row_of(each), origins) for each in some]
                file.write_table(arrow.Table.from_pylist(rows, schema=schema))
                count += len(some)
        part.replace(target)
    except OSError as error:
        raise BadInput(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return count


def _origins(observations: Iterable[Observation]) -> dict[str, tuple[str, str]]:
    """The origin of each problem, and its campaign."""
    found: dict[str, tuple[str, str]] = {}
    for each in observations:
        conditions = {} if each.measurement is None else dict(each.measurement.conditions)
        if "origin" in conditions:
            found[each.candidate.problem.key] = conditions["origin"], conditions.get("campaign", "")
    return found


def _with_origin(row: dict[str, Any], origins: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    if row["origin"] is None and row["problem"] in origins:
        row["origin"], row["campaign"] = origins[row["problem"]]
    return row


def read(path: Path | str) -> Iterator[Observation]:
    """The observations in a file made by ``write``."""
    arrow, parquet = _libraries()
    try:
        file = parquet.ParquetFile(path)
    except (OSError, arrow.ArrowInvalid) as error:
        said = "there is no such file" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        raise BadInput(f"{path} cannot be read: {said}") from error
    with file:
        if (file.schema_arrow.metadata or {}).get(_KEY) != SCHEMA.encode():
            raise BadInput(f"{path} is a table, but not of observations: its metadata do not name {SCHEMA!r}")
        for some in file.iter_batches(_AT_ONCE):
            for row in some.to_pylist():
                yield observation_of(row)


def _schema(arrow: Any) -> Any:
    types = {
        "text": arrow.string(), "count": arrow.int64(), "counts": arrow.list_(arrow.int64()),
        "number": arrow.float64(), "numbers": arrow.list_(arrow.float64()),
    }  # fmt: skip
    fields = [arrow.field(name, types[held]) for name, held in COLUMNS.items()]
    return arrow.schema(fields, metadata={_KEY: SCHEMA.encode()})


def _libraries() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput(
            "a table of observations is written by pyarrow, which is not installed: pip install 'convwright[campaign]'"
        ) from error
    return pyarrow, pyarrow.parquet
