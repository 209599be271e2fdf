"""Where there is no memory for a workspace inside a capture, the capture is whole and its graph is right."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.eager.calls.call import forget
from convwright.eager.running import runner as runners
from convwright.eager.running import workspace as workspaces
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning.session import Answer, Choice, Session, session

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")


def with_workspace(x: Tensor, w: Tensor) -> Choice:
    """The first candidate that was run and needs a workspace."""
    for verdict in cw.find(x, w, mode="quick").verdicts:
        measured = verdict.finding.measurement
        if measured is not None and measured.workspace_bytes > 0:
            id_ = verdict.finding.candidate.id
            return session().answer(cw.problem(x, w), device_facts(x.device), cw.Policy(), id_, None).captured
    pytest.skip("no candidate here needs a workspace")


def test_a_shortage_inside_a_capture_leaves_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = torch.randn(4, 32, 28, 28, device="cuda"), torch.randn(48, 32, 3, 3, device="cuda")
    chosen = with_workspace(x, w)
    monkeypatch.setattr(Session, "answer", lambda *_, **__: Answer(chosen, chosen))

    def workspace(nbytes: int, device: torch.device) -> Callable[[], Tensor]:
        give = workspaces.workspace(nbytes, device)

        def only_outside() -> Tensor:
            if torch.cuda.is_current_stream_capturing():
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return give()

        return only_outside

    monkeypatch.setattr(runners, "workspace", workspace)
    forget()
    exact = F.conv2d(x.double(), w.double())
    with torch.no_grad():
        F.conv2d(x, w)
        for _ in range(3):
            assert_close(cw.conv2d(x, w, policy=cw.Policy()).double(), exact, rtol=1e-2, atol=1e-1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with warnings.catch_warnings():
            warnings.simplefilter("error", cw.MemoryWarning)
            with torch.cuda.graph(graph):
                y = cw.conv2d(x, w, policy=cw.Policy())
        last = cw.last_choice()
        assert last is not None
        assert last.candidate.id.startswith("torch/default")
        assert "out of memory" in str(last.note)
        y.zero_()
        graph.replay()
        assert_close(y.double(), exact, rtol=1e-2, atol=1e-1)
        assert_close(cw.conv2d(x, w, policy=cw.Policy()).double(), exact, rtol=1e-2, atol=1e-1)
    forget()
    assert cw.last_choice() is chosen
