"""Which GPU is the current one while something runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from convwright import torch_api
from convwright.eager.running.runner import on_device


class Machine:
    """As many GPUs as are said, of which number 0 is the current one."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current = 0
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch_api, "current_gpu", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "device", self.switched)

    @contextmanager
    def switched(self, device: torch.device) -> Iterator[None]:
        assert device.index is not None
        before, self.current = self.current, device.index
        yield
        self.current = before

    def run(self, operand: int) -> tuple[int, int]:
        return operand, self.current


@pytest.mark.parametrize("index", [0, 1, 3])
def test_the_operands_gpu_is_the_current_one_inside(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(4, monkeypatch)
    assert on_device(machine.run, torch.device("cuda", index))(7) == (7, index)
    assert machine.current == 0


@pytest.mark.parametrize(("count", "device"), [(1, torch.device("cuda", 0)), (4, torch.device("cpu"))])
def test_where_there_is_no_other_nothing_stands_around_it(
    count: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Machine(count, monkeypatch).run
    assert on_device(run, device) is run
