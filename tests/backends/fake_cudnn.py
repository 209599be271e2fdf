"""cuDNN on a live GPU, played by a recorder: for tests of what is passed to it, and of what is made of its answers."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch

from convwright import torch_api
from convwright.backends.cudnn.classic import listing as classic
from convwright.backends.cudnn.classic import plan as classic_plan
from convwright.backends.cudnn.library import Library
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy

GPU = DeviceFacts("a GPU", "cuda", "sm_90", torch_name="cuda:0")


class FakeCudnn:
    """Records calls, and answers as told. Its functions are its items, as a library's are."""

    def __init__(self, monkeypatch):
        self.calls, self.live, self.answers, self.created = [], {}, {}, 0
        self.library = Library(91900, "fake", self)
        monkeypatch.setattr(classic, "load", lambda: self.library)
        for module in (classic, classic_plan):
            monkeypatch.setattr(module, "handle", lambda device, stream: f"handle {device} {stream}")
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=5))
        monkeypatch.setattr(torch_api, "current_gpu", lambda: 0)
        monkeypatch.setattr(torch_api, "current_stream", lambda _: 5)

    def __getitem__(self, name):
        return lambda *args: self._run(name, args)

    def _run(self, name, args):
        self.calls.append((name, args))
        if name.startswith("cudnnCreate"):
            self.created += 1
            args[0]._obj.value = self.created
            self.live[self.created] = name.removeprefix("cudnnCreate").removesuffix("Descriptor")
        if name.startswith("cudnnDestroy"):
            del self.live[args[0].value]
        if name.endswith("WorkspaceSize"):
            args[-1]._obj.value = 640
        return self.answers.get(name, 0)

    def shapes(self):
        """What each tensor or filter descriptor was last told."""
        told = [args for name, args in self.calls if name.endswith("NdDescriptor") and "Set" in name]
        return {args[0].value: tuple(args[-2]) if "Tensor" in self.live[args[0].value] else tuple(args[-1])
                for args in told if self.live.get(args[0].value) != "Convolution"}  # fmt: skip


def one(problem, name):
    return next(offer for offer in classic.candidates(problem, GPU, Policy()) if offer.id == name)
