"""Why no placement serves all jobs: one sentence that names a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from convwright.placement.jobs import Job
from convwright.placement.question import Question
from convwright.placement.solve import OutOfTime, solve
from convwright.placement.ways import ways_of, why_nowhere

# For each question solved here: for a reason, and for the job that is one too many, which need not be the first.
_LIMIT_S, _JOB_S = 10.0, 1.0


def why_infeasible(question: Question) -> str:
    """A sentence that names a job that cannot run even alone, or else the first job, in the given order, that does not
    fit with those before it; a later such job if that is hard to tell."""
    for job in question.jobs:
        if not ways_of(question, job):
            return why_nowhere(question, job)
    if question.at_most and _fits(replace(question, at_most=())):
        limits = " and ".join(f"{name} at most {limit:g}" for name, limit in question.at_most)
        others = f" and {len(question.jobs) - 1} more" * (len(question.jobs) > 1)
        return f"no placement of {question.jobs[0].name!r}{others} has {limits}"
    question = replace(question, at_most=())
    least, most = 1, len(question.jobs)  # the largest number of jobs that fit lies between them
    while least < most:
        middle = (least + most) // 2
        fits = _fits(_with_jobs(question, middle), _JOB_S)
        least, most = (middle + 1, most) if fits else (least, middle)
    job, ahead = question.jobs[most - 1], most - 1
    reason = next(_reasons(_with_jobs(question, most)), "there are too few devices")
    others = "the job before it" if ahead == 1 else f"the {ahead} jobs before it"
    return f"job {job.name!r} does not fit together with {others}: {reason}"


def _with_jobs(question: Question, count: int) -> Question:
    return replace(question, jobs=question.jobs[:count])


def _reasons(question: Question) -> Iterator[str]:
    """Each limit without which a placement exists, as a reason."""
    if any(job.deadline_s for job in question.jobs) and _fits(_without_deadlines(question)):
        yield "their deadlines are too short for all of them"
    plenty = tuple(replace(device, memory_bytes=2**62) for device in question.devices)
    if _fits(replace(question, devices=plenty)):
        yield "there is too little memory for the models of all streams"
    if all(job.is_stream for job in question.jobs):
        yield "their rates are above what all devices together run"
    elif any(job.is_stream for job in question.jobs):
        yield "streams and one-off jobs do not share a device, and there are too few devices"


def _without_deadlines(question: Question) -> Question:
    def free(jobs: Sequence[Job]) -> tuple[Job, ...]:
        return tuple(replace(job, deadline_s=None) for job in jobs)

    return replace(question, jobs=free(question.jobs))


def _fits(question: Question, limit_s: float = _LIMIT_S) -> bool:
    """Whether there is a placement. If the solver runs out of time, one is assumed to exist."""
    try:
        return solve(question, gap=1e9, limit_s=limit_s) is not None
    except OutOfTime:
        return True
