"""The memory of an engine: buffers in its arena with their lifetimes, weights, and tensors outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convwright.engine.planning.step_text import table
from convwright.graph.memory_plan import Buffer, MemoryPlan, lower_bound
from convwright.wording.pictures import COLOURS, picture_path


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """All in bytes. ``buffers`` lie in the arena at the offsets of ``plan``: tensors, and workspaces for one step each.
    A tensor that overwrites another has no buffer of its own. ``outside`` are tensors that PyTorch's operators allocate
    in each run. ``weights`` counts shared memory once. ``tensors`` is the sum of all results, as if each had memory of
    its own.

    ``pool`` is what PyTorch keeps for the CUDA graph; on a GPU, tensors outside of the arena lie there. ``context`` is
    all other memory in use on the GPU: CUDA's context, libraries and their kernels, other processes. ``eager`` is the
    peak of a run of the model itself, without weights and inputs, in its own layout ("nchw") and with channels last
    ("nhwc"). These are None on a CPU; ``eager`` is also None if no model was given."""

    plan: MemoryPlan
    buffers: tuple[Buffer, ...]
    outside: tuple[Buffer, ...]
    weights: int
    tensors: int
    steps: int
    pool: int | None = None
    context: int | None = None
    eager: Mapping[str, int] | None = None

    @property
    def arena(self) -> int:
        return self.plan.nbytes

    @property
    def workspace(self) -> int:
        """The largest workspace, which lies in the arena."""
        return max((each.nbytes for each in self.buffers if each.is_workspace), default=0)

    @property
    def peak(self) -> int:
        """The arena plus the peak outside of it: what ``memory_budget`` limits."""
        return self.arena + self.outside_peak

    @property
    def outside_peak(self) -> int:
        return lower_bound(self.outside)

    @property
    def eager_peak(self) -> int | None:
        """The peak of a run of the model itself, in its better layout."""
        return min(self.eager.values()) if self.eager else None

    def __str__(self) -> str:
        rows = [
            (each.name, f"{each.first}–{each.last}", f"{self.plan.offsets[each.name]:,}", f"{each.nbytes:,}")
            for each in sorted(self.buffers, key=lambda each: (each.first, each.name))
        ]
        sums = [
            str(self.plan),
            f"largest workspace, in the arena: {self.workspace:,} bytes",
            f"without reuse: {self.tensors:,} bytes",
            f"weights: {self.weights:,} bytes",
        ]
        if self.outside:
            sizes = ", ".join(f"{each.name} {each.nbytes:,}" for each in self.outside)
            sums.append(f"made by PyTorch's operators at each run: {self.outside_peak:,} bytes at once ({sizes})")
        if self.pool is not None:
            sums.append(f"kept by PyTorch for the CUDA graph: {self.pool:,} bytes")
        if self.context is not None:
            sums.append(f"context, libraries and other processes: {self.context:,} bytes")
        sums.append(f"peak, without weights and inputs: {self.peak:,} bytes")
        if self.eager is not None:
            each = ", ".join(f"{name} {nbytes:,}" for name, nbytes in self.eager.items())
            sums.append(f"peak of the model itself: {self.eager_peak:,} bytes ({each})")
        return "\n".join((table(("buffer", "steps", "offset", "bytes"), rows, numbers=(1, 2, 3)), "", *sums))

    def draw(self, path: Path | str) -> None:
        """Draw the arena: steps from left to right, addresses upwards. The line shows the live bytes."""
        path = picture_path(path)
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle

        figure = Figure(figsize=(10, 5), layout="constrained")
        axes: Any = figure.subplots()
        unit, name = _unit(self.arena)
        for place, each in enumerate(self.buffers):
            corner = each.first - 0.5, self.plan.offsets[each.name] / unit
            colour = "#bbbbbb" if each.is_workspace else COLOURS[place % len(COLOURS)]
            size = each.last - each.first + 1, each.nbytes / unit
            axes.add_patch(Rectangle(corner, *size, facecolor=colour, edgecolor="white", linewidth=0.4))
        alive = [sum(e.nbytes for e in self.buffers if e.first <= at <= e.last) / unit for at in range(self.steps)]
        if any(each.is_workspace for each in self.buffers):
            axes.add_patch(Rectangle((0, 0), 0, 0, facecolor="#bbbbbb", label="workspace"))
        axes.step(range(self.steps), alive, where="mid", color="black", linewidth=1.0, label="alive")
        axes.set(xlim=(-0.5, self.steps - 0.5), ylim=(0, 1.05 * max(self.arena, 1) / unit), xlabel="step", ylabel=name)
        axes.legend(loc="upper right")
        figure.savefig(path)


def _unit(nbytes: int) -> tuple[float, str]:
    for power, name in ((3, "GB"), (2, "MB"), (1, "kB")):
        if nbytes >= 1000**power:
            return 1000.0**power, name
    return 1.0, "bytes"
