"""Compiled kernels beside a saved engine. Here a stand-in makes them: PyTorch's pools, as if they were compiled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import convwright as cw
from convwright.backends.torch_native import pooling
from convwright.backends.torch_native.pooling import TorchPool
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.engine.saving.saved import digest
from convwright.errors import BackendError, BadInput, ConvwrightError, Refused
from engine.changed_plan import write

X = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))


class Compiler:
    """What was compiled, and which texts were read."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.read: list[str] = []

    def forget(self) -> None:
        self.built, self.read = [], []


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return stand_in(monkeypatch)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    known, build, candidate = Compiler(), TorchPool.build, pooling._candidate

    def compiled(*args: Any) -> Candidate:
        return replace(candidate(*args), compiles=True)

    def built(self: TorchPool, made: Candidate, device: DeviceFacts) -> Plan:
        known.built.append(made.problem.key)
        return build(self, made, device)

    def read(self: TorchPool, made: Candidate, device: DeviceFacts, text: str) -> Plan:
        known.read.append(text)
        if not text.startswith("binary of "):
            raise BackendError("a stored kernel cannot be read")
        return build(self, made, device)

    monkeypatch.setattr(pooling, "_candidate", compiled)
    monkeypatch.setattr(TorchPool, "build", built)
    monkeypatch.setattr(TorchPool, "read", read, raising=False)
    monkeypatch.setattr(
        TorchPool, "written", lambda self, plan: f"binary of {plan.candidate.problem.key}", raising=False
    )
    return known


def net() -> nn.Module:
    """Two pools that are the same problem, and one that is another."""
    torch.manual_seed(0)
    same = (nn.MaxPool2d(3, 1, 1), nn.Conv2d(4, 4, 1))
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), *same, same[0], nn.MaxPool2d(2)).eval()


def optimized(**options: Any) -> Any:
    return cw.optimize(net(), X, mode="heuristic", **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        optimized().save(folder, kernels=True)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """The folder of an engine with kernels, which a test may change."""
    return Path(copytree(saved, tmp_path, dirs_exist_ok=True))


def kernels_of(folder: Path) -> Any:
    return json.loads((folder / "kernels.json").read_text())


def sign(folder: Path, text: str) -> None:
    """Write kernels, and a plan that has their checksum."""
    (folder / "kernels.json").write_text(text)
    plan = json.loads((folder / "plan.json").read_text())
    write(folder, plan | {"compiled": digest(text.encode())})


def refusal(folder: Path) -> str:
    with pytest.raises(ConvwrightError) as raised:
        cw.load(folder, "cpu", trust_kernels=True)
    said = str(raised.value)
    assert len(said.splitlines()) == 1
    assert len(said) < 1000
    return said


def test_what_is_trusted_is_not_compiled(compiler: Compiler, tmp_path: Path) -> None:
    engine = optimized()
    engine.save(tmp_path, kernels=True)
    kernels = kernels_of(tmp_path)["kernels"]
    assert len(kernels) == 2  # the two pools that are alike share one
    assert {each["text"] for each in kernels} == {f"binary of {each['problem']}" for each in kernels}
    compiler.forget()
    loaded = cw.load(tmp_path, "cpu", trust_kernels=True)
    assert torch.equal(loaded(X), engine(X))
    assert compiler.built == []
    assert set(compiler.read) == {each["text"] for each in kernels}


def test_what_is_not_trusted_is_not_read(compiler: Compiler, folder: Path) -> None:
    (folder / "kernels.json").unlink()
    os.mkfifo(folder / "kernels.json")  # to read it would never end
    assert cw.load(folder, "cpu")(X).shape == (2, 4, 4, 4)
    assert len(compiler.built) == 3
    assert compiler.read == []


def test_all_buckets_share_one_file(compiler: Compiler, tmp_path: Path) -> None:
    several = optimized(buckets=[2, 4])
    several.save(tmp_path, kernels=True)
    assert len(kernels_of(tmp_path)["kernels"]) == 4
    compiler.forget()
    loaded = cw.load(tmp_path, "cpu", trust_kernels=True)
    for batch in (2, 3, 4):
        x = torch.randn(batch, 4, 8, 8)
        assert torch.equal(loaded(x), several(x))
    assert compiler.built == []
    loaded.save(tmp_path / "again", kernels=True)
    assert compiler.built == []
    assert kernels_of(tmp_path / "again") == kernels_of(tmp_path)


def test_what_is_made_of_a_trusted_engine_compiles_nothing_either(compiler: Compiler, folder: Path) -> None:
    loaded = cw.load(folder, "cpu", trust_kernels=True)
    name = next(step.name for step in loaded.assignment.steps if step.operation.kind == "conv")
    same: list[Callable[[Tensor], Tensor]] = [loaded.clone(), loaded.pin(name)]
    for each in same:
        torch.testing.assert_close(each(X), loaded(X))
    loaded.save(folder / "again", kernels=True)
    assert compiler.built == []
    assert kernels_of(folder / "again") == kernels_of(folder)


def test_what_cannot_be_written_down_is_built(
    compiler: Compiler, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = cw.load(folder, "cpu", trust_kernels=True)
    monkeypatch.setattr(TorchPool, "written", lambda self, plan: None)
    optimized().save(folder, kernels=True)
    assert kernels_of(folder)["kernels"] == []
    compiler.forget()
    assert torch.equal(cw.load(folder, "cpu", trust_kernels=True)(X), loaded(X))
    assert len(compiler.built) == 3


def test_a_text_that_its_backend_cannot_read_is_built(compiler: Compiler, folder: Path) -> None:
    before, kernels = cw.load(folder, "cpu")(X), kernels_of(folder)
    for each in kernels["kernels"]:
        each |= {"text": "garbled", "sha256": digest(b"garbled")}
    sign(folder, json.dumps(kernels))
    compiler.forget()
    assert torch.equal(cw.load(folder, "cpu", trust_kernels=True)(X), before)
    assert len(compiler.built) == 2  # the third pool is one of these


def test_an_engine_that_was_saved_without_kernels(compiler: Compiler, folder: Path) -> None:
    optimized().save(folder)  # the file of before lies there still, and belongs to no plan
    with pytest.raises(
        Refused, match=r"was saved without compiled kernels: load it without trust_kernels, or save with"
    ):
        cw.load(folder, "cpu", trust_kernels=True)
    assert cw.load(folder, "cpu")(X).shape == (2, 4, 4, 4)


@pytest.mark.usefixtures("compiler")
def test_a_file_that_is_not_what_was_saved(folder: Path) -> None:
    path = folder / "kernels.json"
    path.write_bytes(path.read_bytes().replace(b"binary", b"BINARY"))
    with pytest.raises(BadInput, match=r"kernels\.json was changed after saving: its checksum differs"):
        cw.load(folder, "cpu", trust_kernels=True)
    path.unlink()
    assert "holds no kernels.json, though it was saved with compiled kernels" in refusal(folder)
    path.mkdir()
    assert "is not a file" in refusal(folder)


@pytest.mark.usefixtures("compiler")
def test_a_signed_file_that_holds_no_kernels(folder: Path) -> None:
    text, first = (folder / "kernels.json").read_text(), kernels_of(folder)["kernels"][0]
    for changed, said in (
        (text.replace('"version": 1', '"version": 7'), "has version 7, and this convwright reads version 1"),
        (text.replace('"version": 1', '"version": NaN'), "holds no kernels: JSON has no NaN"),
        (text[: len(text) // 2], "holds no kernels"),
        ("[]", "holds no kernels"),
        ("{}", "holds no kernels"),
        ('{"version": 1}', "holds no kernels: each has problem, device, candidate, fingerprint and text"),
        ('{"version": 1, "kernels": [3]}', "holds no kernels: each has"),
        (text.replace('"text"', '"Text"', 1), "holds no kernels: each has"),
        (text.replace("binary of", "binary  of", 1), "was changed after saving: the checksum of 'torch/"),
        (text.replace("binary of", "\\ud800", 1), "was changed after saving: the checksum of 'torch/"),
        (text.replace(first["fingerprint"], "another"), "holds a kernel that the plan does not run: 'torch/"),
        (text.replace(first["device"], "another"), "holds a kernel that the plan does not run: 'torch/"),
        (text.replace(first["candidate"], "torch/a\\nb"), r"that the plan does not run: 'torch/a\nb'"),
    ):
        assert changed != text
        sign(folder, changed)
        assert said in refusal(folder)


@pytest.mark.usefixtures("compiler")
def test_a_network_that_is_planned_anew_needs_no_kernels(folder: Path) -> None:
    before, plan = cw.load(folder, "cpu")(X), json.loads((folder / "plan.json").read_text())
    (folder / "kernels.json").unlink()
    write(folder, plan | {"device": "another"})
    again = cw.load(folder, "cpu", on_change="replan", mode="heuristic", trust_kernels=True)
    torch.testing.assert_close(again(X), before)
