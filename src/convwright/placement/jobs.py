"""A job: a model with images to run, once or as a stream."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.naming import check_above_0, check_name, check_not_below_0, is_whole

_LEAST_PER_S = 1e-9  # figures of rarer streams are lost in rounding


@dataclass(frozen=True, slots=True)
class Job(Record):
    """A model to be run. ``key`` names the model and its input size; estimates are found by it.

    A job has ``images``, a number to be run once, or ``rate_per_s``, a stream of so many images per second.
    ``deadline_s`` is the time from now by which all images must be done; for a stream, the latency of an image.
    ``source`` is the device or host of the input and the results; None means every device.

    >>> Job("night run", "resnet50 224", (1, 32), images=10_000, deadline_s=3600.0).is_stream
    False
    """

    name: str
    key: str
    batches: tuple[int, ...]
    images: int | None = None
    rate_per_s: float | None = None
    deadline_s: float | None = None
    source: str | None = None
    bytes_in: int = 0
    bytes_out: int = 0

    def __post_init__(self) -> None:
        check_name("`name` of a job", self.name)
        check_name(f"`key` of job {self.name!r}", self.key)
        _check_batches(self)
        if (self.images is None) == (self.rate_per_s is None):
            given = "neither" if self.images is None else "both"
            raise BadInput(f"job {self.name!r} needs either `images` or `rate_per_s`, got {given}")
        if self.images is not None and not (is_whole(self.images) and self.images > 0):
            raise BadInput(f"`images` of job {self.name!r} must be a whole number above 0, got {self.images!r}")
        for field in ("rate_per_s", "deadline_s"):
            if getattr(self, field) is not None:
                check_above_0(f"`{field}` of job {self.name!r}", getattr(self, field))
        if self.rate_per_s is not None and self.rate_per_s < _LEAST_PER_S:
            raise BadInput(
                f"`rate_per_s` of job {self.name!r} is less than one image in 30 years, got {self.rate_per_s:g}: "
                "write `images` instead"
            )
        if self.source is not None:
            check_name(f"`source` of job {self.name!r}", self.source)
        for field in ("bytes_in", "bytes_out"):
            check_not_below_0(f"`{field}` of job {self.name!r}", getattr(self, field))

    @property
    def is_stream(self) -> bool:
        return self.rate_per_s is not None

    @property
    def bytes_per_image(self) -> int:
        """Bytes moved for an image, in and out."""
        return self.bytes_in + self.bytes_out


def _check_batches(job: Job) -> None:
    batches = job.batches
    if not (isinstance(batches, tuple | list) and batches and all(is_whole(each) and each > 0 for each in batches)):
        raise BadInput(f"`batches` of job {job.name!r} must be whole numbers above 0, got {batches!r}")
    object.__setattr__(job, "batches", tuple(sorted(set(batches))))
