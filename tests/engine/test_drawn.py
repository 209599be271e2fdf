"""Networks that Hypothesis draws, through the whole pipeline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from torch import Tensor

import convwright as cw
from convwright import torch_api
from convwright.core.tensor_spec import same_order
from convwright.errors import Refused
from convwright.engine.export.exported import exported
from convwright.engine.passes.listed import PASSES
from convwright.engine.reference import reference
from engine.test_slices import engine as in_slices
from engine.drawn_network import DrawnNetwork, errors, networks

EXAMPLES = int(os.environ.get("CONVWRIGHT_EXAMPLES", "12"))


def flat(outputs: object) -> list[Tensor]:
    return torch_api.flatten(outputs)[0]


def is_narrow(model: DrawnNetwork, inputs: list[Tensor]) -> bool:
    return "cast" in repr(model)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.booleans())
def test_an_engine_computes_what_the_model_computes(model: DrawnNetwork, sliced: bool) -> None:
    inputs = model.examples
    with torch.no_grad():
        own = flat(model(*inputs))
        exact = flat(model.in_float64()(*(each.double() for each in inputs)))
    narrow = is_narrow(model, inputs)
    try:
        made = in_slices(model, *inputs) if sliced else cw.optimize(model, tuple(inputs), mode="heuristic")
    except Refused as why:
        event(f"refused: {str(why)[:60]}")
        assert "cannot be planned" in str(why) or "fp64" in str(why), why
        return
    before = [each.clone() for each in inputs]
    got = flat(made(*inputs))
    kept = [each.clone() for each in got]
    assert not errors(got, own, exact, narrow), (errors(got, own, exact, narrow), model)
    again = flat(made(*(each + 1 for each in inputs)))
    assert all(map(same, got, kept)), model
    assert all(map(torch.equal, inputs, before)), model
    del again
    for mine, theirs in zip(got, own, strict=True):
        if theirs.is_contiguous() or (theirs.dim() == 4 and theirs.is_contiguous(memory_format=torch.channels_last)):
            assert same_order(theirs.shape, mine.stride(), theirs.stride()), model
    with TemporaryDirectory() as folder:
        made.save(Path(folder))
        loaded = cw.load(Path(folder), "cpu")
        assert all(map(same, flat(loaded(*inputs)), kept)), model


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks())
def test_every_pass_preserves_results(model: DrawnNetwork) -> None:
    inputs = model.examples
    with torch.no_grad():
        exact = flat(model.in_float64()(*(each.double() for each in inputs)))
    try:
        network = exported(model, tuple(inputs), inputs).network
    except Refused:
        return
    before = reference(network, inputs)
    if not is_narrow(model, inputs):
        near(before, exact, 1e-6, f"captured {model}")
    for name, change in PASSES.items():
        network = change(network).network
        near(reference(network, inputs), before, 2e-2 if is_narrow(model, inputs) else 1e-5, f"{name} {model}")


def near(got: Sequence[Tensor], right: Sequence[Tensor], tolerance: float, what: str) -> None:
    for mine, exact in zip(got, right, strict=True):
        assert mine.shape == exact.shape, what
        off = torch.linalg.vector_norm(torch.nan_to_num(mine - exact))
        assert off <= tolerance * (torch.linalg.vector_norm(torch.nan_to_num(exact)) + 1e-3), what


def same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
