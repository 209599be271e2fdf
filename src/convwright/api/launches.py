"""The kernels that each measured candidate launches. They are listed after all timing, since a profiler disturbs it."""

from __future__ import annotations

from dataclasses import replace

import torch

from convwright.core.device import DeviceFacts
from convwright.errors import BackendError, BadInput
from convwright.measuring.kernels import Kernel, kernels_of
from convwright.settings import Mode
from convwright.tuning.findings import Findings
from convwright.tuning.trials.quick_timing import FAILURES, failure
from convwright.tuning.trials.search_input import SEED
from convwright.tuning.trials.trial import Bench, Trial
from convwright.wording.progress import Progress, progress_to


def check_launches(device: DeviceFacts, mode: Mode) -> None:
    """Refuse to list kernels on a device that launches none."""
    if not device.present:
        raise BadInput(f"kernels are listed by running candidates, and {device.name} is not in this machine")
    if device.kind != "cuda":
        raise BadInput(f"only a GPU runs kernels, and {device.name} is none")
    if not mode.measures:
        raise BadInput(f"kernels are listed by running candidates, and nothing runs in mode {mode}")


def with_kernels(found: Findings, progress: Progress | None = None) -> Findings:
    """``found`` with the kernels of each measured candidate; None for a candidate that could not run once more."""
    candidates = [v.finding.candidate for v in found.verdicts if v.finding.measurement is not None]
    tell, seen = progress_to(progress), dict[str, tuple[Kernel, ...] | None]()
    bench = Bench(found.problem, found.device, found.mode, seed=SEED) if candidates else None
    for done, candidate in enumerate(candidates):
        assert bench is not None
        tell(done, len(candidates), "kernels")
        try:
            with torch.autocast(bench.device.type, enabled=False):
                seen[candidate.id] = kernels_of(Trial(candidate, bench).call(), bench.device)
        except FAILURES as error:
            failure(candidate, error, bench.device)  # raises again if the device itself has failed
            seen[candidate.id] = None
    if seen and not any(seen.values()):
        raise BackendError(
            f"PyTorch's profiler saw no kernel on {found.device.name}: it needs CUPTI and the permission to count"
        )
    return replace(found, kernels=seen)
