"""Networks that Hypothesis draws, through the whole pipeline. More of them: CONVWRIGHT_EXAMPLES=2000 pytest …"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import convwright as cw
from convwright import torch_api
from convwright.engine.export.exported import exported
from convwright.engine.passes.listed import PASSES
from convwright.engine.reference import reference
from engine.drawn_network import DrawnNetwork, errors, networks
from engine.test_slices import engine as in_slices

EXAMPLES = int(os.environ.get("CONVWRIGHT_EXAMPLES", "8"))
# They draw until something fits, and that takes as long as it does.
HEALTHY = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def flat(outputs: object) -> list[Tensor]:
    return torch_api.flatten(outputs)[0]


@torch.no_grad()
def exact(model: DrawnNetwork) -> list[Tensor]:
    return flat(model.in_float64()(*(each.double() for each in model.examples)))


@settings(max_examples=EXAMPLES, suppress_health_check=HEALTHY)
@given(networks(), st.booleans())
def test_an_engine_computes_what_the_model_computes(model: DrawnNetwork, sliced: bool) -> None:
    inputs = model.examples
    made = in_slices(model, *inputs) if sliced else cw.optimize(model, tuple(inputs), mode="heuristic")
    before = [each.clone() for each in inputs]
    got = flat(made(*inputs))
    with torch.no_grad():
        assert not errors(got, flat(model(*inputs)), exact(model), narrow=model.is_narrow), model
    kept = [each.clone() for each in got]
    made(*(each + 1 for each in inputs))
    assert all(map(same, got, kept)), model
    assert all(map(torch.equal, inputs, before)), model
    with TemporaryDirectory() as folder:
        made.save(Path(folder))
        loaded = cw.load(Path(folder), "cpu")
    assert loaded.assignment.steps == made.assignment.steps
    assert all(map(same, flat(loaded(*inputs)), kept)), model


@settings(max_examples=EXAMPLES, suppress_health_check=HEALTHY)
@given(networks())
def test_every_pass_preserves_results(model: DrawnNetwork) -> None:
    inputs = model.examples
    network = exported(model, tuple(inputs), inputs).network
    before = reference(network, inputs)
    if not model.is_narrow:
        near(before, exact(model), 1e-6, f"captured {model}")
    for name, change in PASSES.items():
        network = change(network).network
        near(reference(network, inputs), before, 2e-2 if model.is_narrow else 1e-5, f"{name} {model}")


def near(got: Sequence[Tensor], right: Sequence[Tensor], tolerance: float, what: str) -> None:
    for mine, theirs in zip(got, right, strict=True):
        assert mine.shape == theirs.shape, what
        off, norm = (torch.linalg.vector_norm(torch.nan_to_num(each)) for each in (mine - theirs, theirs))
        assert off <= tolerance * (norm + 1e-3), what


def same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
