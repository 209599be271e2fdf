"""Folders that somebody changed, whose checksums are right: an engine that runs, or one sentence."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import convwright as cw
from convwright import torch_api
from convwright.engine import loaded
from convwright.engine.engine import Engine
from convwright.errors import BadInput, ConvwrightError, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import empty
from engine.changed_plan import changed, sign_weights, write
from engine.net import Net
from engine.test_slices import Convolutions, dense_block
from engine.test_slices import engine as in_slices

CHANGES = int(os.environ.get("CONVWRIGHT_EXAMPLES", "100"))


def everything(self: Any, x: Tensor) -> Any:
    """Convolutions, operators of PyTorch's with arguments of all kinds, views, constants as outputs."""
    y = self.conv(x)
    z = torch.cat([F.max_pool2d(y, 2), F.interpolate(y, size=(3, 3), mode="bicubic")], 1)
    return {"a": z.flatten(1), "b": (y.cumsum(1) * self.scale, x), "c": F.pad(y, (1, 1, 1, 1), "reflect") + 1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    net = Net(everything, conv=nn.Conv2d(4, 4, 1), scale=nn.Parameter(torch.ones(4, 1, 1))).eval()
    plain = cw.optimize(net, torch.randn(1, 4, 6, 6), mode="heuristic")
    sliced = in_slices(Convolutions(dense_block, 4, 8), torch.randn(1, 4, 5, 5))
    folders = []
    for made in (plain, sliced):
        folders.append(tmp_path_factory.mktemp("engine"))
        made.save(folders[-1])
    return folders


def plan_of(folder: Path) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return plan


@pytest.fixture
def folder(saved: list[Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[0], tmp_path / "engine"))


def run(made: Engine) -> list[Tensor]:
    specs = [made.assignment.tensors[name] for name in made.assignment.inputs]
    outputs: list[Tensor] = torch_api.flatten(made(*(empty(spec, "cpu").fill_(1) for spec in specs)))[0]
    return outputs


def check(folder: Path) -> str:
    """Load and run. What a plan says of its outputs is what they are."""
    try:
        made = cw.load(folder, "cpu")
        outputs = run(made)
    except ConvwrightError as error:
        said = str(error)
    else:
        specs = made.assignment.tensors | made.assignment.constants
        assert {tuple(each.shape) for each in outputs} <= {specs[name].shape for name in made.assignment.outputs}
        said = "runs"
    assert len(said.splitlines()) == 1
    assert len(said) < 1000
    return said


@pytest.mark.parametrize("which", [0, 1])
def test_a_changed_plan_is_refused_or_runs(saved: list[Path], which: int, tmp_path: Path) -> None:
    folder, random = Path(shutil.copytree(saved[which], tmp_path / "engine")), Random(which)
    plan = plan_of(folder)
    for number in range(CHANGES // 2):
        write(folder, changed(plan, random, 1 + number % 2))
        check(folder)
    write(folder, plan)
    assert check(folder) == "runs"


def edit(folder: Path, **fields: Any) -> None:
    write(folder, plan_of(folder) | fields)


def test_what_is_no_plan_is_one_sentence(folder: Path) -> None:
    plan = (folder / "plan.json").read_text()
    for text, said in (
        (plan.replace('"version": 2', '"version": NaN'), "JSON has no NaN"),
        (plan.replace('"version": 2', '"version": 0'), "has version 0, and this convwright reads version 2"),
        (plan.replace('"version": 2', '"version": 1e999'), "too large for a number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"version": 1, "version": 1}', "there twice"),
        (plan[: len(plan) // 2], "is not the plan of an engine"),
        (plan.replace('"outputs"', '"Outputs"', 1), "its checksum differs"),
    ):
        (folder / "plan.json").write_text(text)
        assert said in check(folder)


def test_what_a_signed_plan_may_not_say(folder: Path) -> None:
    text = (folder / "plan.json").read_text()
    for old, new, said in (
        ('pointwise \\"', 'pointwise \\"system(a) + ', "system"),
        ("aten.cumsum.default", "aten.cumsum_.default", "is no operator that computes a tensor from tensors"),
        ("aten.cumsum.default", "prims.cumsum.default", "PyTorch has no operator called"),
        ("aten.cumsum.default", "aten.__class__.mro", "PyTorch has no operator called"),
        ('{\\"tensor\\":0}', '{\\"device\\":\\"meta\\"}', "computes on another device"),
        ('{\\"tensor\\":0}', '{\\"tensor\\":9}', "out of range"),
    ):
        assert old in text
        write(folder, json.loads(text.replace(old, new)))
        assert said in check(folder)


def test_slices_stay_in_their_whole(saved: list[Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved[1], tmp_path / "engine"))
    plan = plan_of(folder)
    name, (whole, start) = next(iter(plan["slices"].items()))
    for place in ([whole, start + 2**40], [whole, -400], [whole, start + 1], ["x", start], [whole, 1e300]):
        edit(folder, slices=plan["slices"] | {name: place})
        assert "holds no engine that can run" in check(folder)
    edit(folder, wholes={whole: ["fp32", [1, 1], [1, 1]]})
    assert "does not lie in" in check(folder)


def test_weights_that_somebody_changed(folder: Path) -> None:
    plan, weights = plan_of(folder), folder / "weights.safetensors"
    raw, random = weights.read_bytes(), Random(0)
    for _ in range(CHANGES // 4):
        made = bytearray(raw[: random.randrange(len(raw))] if random.random() < 0.3 else raw)
        for _ in range(random.randrange(1, 4) if made else 0):
            made[random.randrange(min(len(made), 200))] = random.randrange(256)
        weights.write_bytes(made)
        sign_weights(folder, plan)
        check(folder)
    weights.write_bytes(b"\xff" * 8 + raw[8:])
    sign_weights(folder, plan)
    assert "holds no engine that can run" in check(folder)


def test_links_are_read_and_never_written_through(folder: Path, tmp_path: Path) -> None:
    held, other = tmp_path / "held", tmp_path / "other"
    held.mkdir()
    for name in ("plan.json", "weights.safetensors"):
        (folder / name).rename(held / name)
        (folder / name).symlink_to(held / name)
    before = {path: path.read_bytes() for path in held.iterdir()}
    made = cw.load(folder, "cpu")
    made.save(folder)
    assert {path: path.read_bytes() for path in held.iterdir()} == before
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "weights.safetensors"]
    other.mkdir()
    (other / "plan.json").symlink_to(tmp_path / "nowhere")
    assert "holds no plan.json" in check(other)
    (other / "plan.json").unlink()
    os.mkfifo(other / "plan.json")
    assert "is not a file" in check(other)
    assert "there is no folder" in check(tmp_path / "nowhere")


def test_a_plan_for_something_else_is_refused_or_made_anew(folder: Path) -> None:
    plan, before = plan_of(folder), run(cw.load(folder, "cpu"))
    others: list[dict[str, Any]] = [
        {"device": "another"}, {"fingerprints": plan["fingerprints"] | {"pytorch": "1.0"}},
        {"fingerprints": plan["fingerprints"] | {"torch": "other"}},
    ]  # fmt: skip
    for fields in others:
        edit(folder, **plan | fields)
        with pytest.raises(Refused, match=r'plan the model again, or call .*on_change="replan"'):
            cw.load(folder, "cpu")
        again = cw.load(folder, "cpu", on_change="replan", mode="heuristic")
        for got, right in zip(run(again), before, strict=True):
            torch.testing.assert_close(got, right)
        again.save(folder / "again")
        assert plan_of(folder / "again")["steps"] == plan["steps"]
    del plan["graph"]
    write(folder, plan | {"device": "another"})
    with pytest.raises(Refused, match="holds no graph"):
        cw.load(folder, "cpu", on_change="replan")
    with pytest.raises(BadInput, match="on_change must be one of refuse, replan"):
        cw.load(folder, "cpu", on_change="ignore")


def test_an_engine_runs_on_the_device_for_which_it_was_planned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = replace(device_facts("h200"), torch_name="cuda:0")
    monkeypatch.setattr(loaded, "device_facts", lambda device=None: device_facts("cpu") if device == "cpu" else best)
    assert cw.load(folder).device == torch.device("cpu")
    threads = f"{device_facts('cpu').name}, 77 threads"
    edit(folder, **plan_of(folder) | {"device": threads})
    with pytest.raises(Refused, match=f"was planned for {re.escape(threads)}, and this is {re.escape(threads[:-11])}"):
        cw.load(folder)
    edit(folder, **plan_of(folder) | {"device": "another"})
    with pytest.raises(Refused, match="was planned for another, and this is NVIDIA H200"):
        cw.load(folder)


def test_a_kernel_that_is_not_here_is_made_anew(folder: Path) -> None:
    plan = plan_of(folder)
    step = next(step for step in plan["steps"] if step["candidate"])
    step["candidate"] = "triton/of-tomorrow"
    write(folder, plan)
    assert "needs something that is missing here: no algorithm here is called 'triton/of-tomorrow'" in check(folder)
    assert run(cw.load(folder, "cpu", on_change="replan", mode="quick"))
