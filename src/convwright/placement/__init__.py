"""Decide which jobs run on which devices with which batch sizes, from given times. No torch.

Input: jobs, devices, and estimates of each job on each device. Output: the best placement, with its schedule, a lower
bound, and what limits it; a curve of two objectives; simulated latencies; the results of a run on a cluster.
Read first: ``jobs``, ``ways``, ``place``.
"""

from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job
from convwright.placement.pareto import pareto
from convwright.placement.picture import draw
from convwright.placement.place import place
from convwright.placement.placement import Placement
from convwright.placement.run import Execution, run_jobs
from convwright.placement.simulate import simulate
from convwright.placement.spec import Spec, read_spec

__all__ = [
    "Device", "Estimate", "Execution", "Job", "Placement", "Spec", "draw", "pareto", "place", "read_spec", "run_jobs",
    "simulate",
]  # fmt: skip
