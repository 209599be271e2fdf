"""Kernels of a user's own in a network: they are planned as all others are, saved by name, and needed to load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from convwright.api.user_kernels import unregister_kernel
from convwright.engine.loaded import load
from convwright.errors import ConvwrightError, Refused
from engine.sixteenfold import Sixteenfold, X, planned, register, runs


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register()
    yield
    unregister_kernel("sixteen")


@pytest.mark.parametrize("writes_out", [False, True])
def test_a_users_kernel_is_planned(writes_out: bool, tmp_path: Path) -> None:
    if writes_out:
        register(run=lambda problem: lambda a, y: torch.mul(a, 16, out=y), writes_out=True)
    engine = planned()
    assert runs(engine) == ["user/sixteen"]
    for made in (engine, engine.clone()):
        assert_close(made(X), 16 * X)
    assert engine.compare(Sixteenfold().eval(), X).first_over is None
    engine.save(tmp_path)
    again = load(tmp_path, "cpu")
    assert runs(again) == ["user/sixteen"]
    assert torch.equal(again(X), engine(X))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("engine")
    register()
    planned().save(made)
    unregister_kernel("sixteen")
    return made


def test_loading_needs_the_kernel(folder: Path) -> None:
    unregister_kernel("sixteen")
    with pytest.raises(
        Refused, match=r"runs version '1' of the kernel 'sixteen': register it first, with cw\.register"
    ):
        load(folder, "cpu")
    register()
    assert_close(load(folder, "cpu")(X), 16 * X)


def test_loading_needs_the_same_version(folder: Path) -> None:
    register("2")
    with pytest.raises(Refused, match="runs version '1' of the kernel 'sixteen', and version '2' is registered"):
        load(folder, "cpu")


def test_a_kernel_that_does_not_serve_any_more_is_said(folder: Path) -> None:
    register(serves=False)
    with pytest.raises(Refused, match=r"user/sixteen cannot compute pointwise .*: does not support this problem"):
        load(folder, "cpu")


def test_an_engine_goes_on_without_the_registration_and_cannot_be_saved(tmp_path: Path) -> None:
    engine = planned()
    unregister_kernel("sixteen")
    assert_close(engine(X), 16 * X)
    with pytest.raises(Refused, match="the engine runs version '1' of the kernel 'sixteen': register it first"):
        engine.save(tmp_path)
    register("2")
    with pytest.raises(Refused, match="the engine runs version '1' of the kernel 'sixteen', and version '2' is regist"):
        engine.save(tmp_path)


def test_what_a_kernel_raises_names_it() -> None:
    called: list[int] = []

    def run(problem: Any) -> Any:
        def compute(a: Tensor) -> Tensor:
            if called:
                raise ValueError("no luck")
            return a * 16

        return compute

    register(run=run)
    engine = planned()
    called.append(1)
    with pytest.raises(
        ConvwrightError, match=r"the registered kernel 'sixteen' raised ValueError: no luck \(test_user_"
    ):
        engine(X)
