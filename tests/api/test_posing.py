"""Tensors, modules and texts pose problems; find takes whatever poses one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import convwright as cw
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from eager.prefer import randn

X, W, B = torch.zeros(2, 4, 8, 8), torch.zeros(6, 4, 3, 3), torch.zeros(6)


def test_tensors_as_the_functions_take_them() -> None:
    posed = cw.problem(X, W, B, stride=2, padding=1, activation="relu")
    assert posed == ConvProblem.of(X.shape, W.shape, stride=2, padding=1, epilogue="bias+relu")
    assert cw.problem(X[0], W) == cw.problem(X[:1], W) == ConvProblem.of((1, 4, 8, 8), W.shape)
    residual = torch.zeros(1, 6, 6, 6)
    for one in (cw.problem(X[:1], W, residual=residual), cw.problem(X[0], W, residual=residual[0])):
        assert one == ConvProblem.of((1, 4, 8, 8), W.shape, epilogue="residual")


def test_what_only_a_description_could_say() -> None:
    uneven = cw.problem(X, W, padding=((0, 1), (1, 1)), flip=True)
    assert uneven == ConvProblem.of(X.shape, W.shape, padding=((0, 1), (1, 1)), flip=True)
    assert cw.problem(X, W, direction="backward_data").direction is Direction.BACKWARD_DATA


def test_a_convolution_takes_no_pairs_as_pytorchs_takes_none() -> None:
    with pytest.raises(BadInput, match=r"`padding` must be an int or 2 ints, got \(\(0, 1\), \(1, 1\)\)"):
        cw.conv2d(X, W, padding=((0, 1), (1, 1)))  # type: ignore[arg-type]


def test_a_tensor_without_dimensions_is_no_number_of_a_problem() -> None:
    for name in ("stride", "dilation", "padding"):
        with pytest.raises(BadInput, match=rf"`{name}` must be an int.*, got tensor\(2\)"):
            cw.problem(X, W, **{name: torch.tensor(2)})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="`input` must be"):
        ConvProblem.of(torch.tensor(2), W.shape)  # type: ignore[arg-type]


def test_modules_with_their_input_or_its_shape() -> None:
    module = nn.Conv2d(4, 6, 3, padding=1)
    posed = ConvProblem.of(X.shape, W.shape, padding=1, epilogue="bias")
    assert cw.problem(module, (2, 4, 8, 8)) == cw.problem(module, X) == cw.problem_of_module(module, X) == posed
    assert cw.problem(module, X, direction="backward_weight") == posed.asking(Direction.BACKWARD_WEIGHT)
    last = X.to(memory_format=torch.channels_last)
    assert cw.problem(module, last) == cw.problem_of_module(module, (2, 4, 8, 8), layout="nhwc") != posed
    assert cw.problem(nn.ConvTranspose1d(4, 6, 3), (2, 4, 8)).direction is Direction.BACKWARD_DATA


def test_texts_and_problems() -> None:
    posed = cw.problem("ic4ih8oc6kh3")
    assert posed == cw.problem(posed) == ConvProblem.parse("ic4ih8oc6kh3")
    assert cw.problem("ic4ih8oc6kh3", direction="backward_data") == posed.asking(Direction.BACKWARD_DATA)


@pytest.mark.parametrize(
    ("given", "named", "words"),
    [
        ((3,), {}, "a problem, its text, an input tensor or an nn.Conv… was expected, got 3"),
        ((nn.Linear(2, 2), (1, 2)), {}, "a module must be one of Conv1d"),
        (
            (nn.Sequential(nn.Conv2d(4, 6, 3)),),
            {},
            "got a Sequential: `cw.advise`, `cw.optimize` and `cw.predict` take",
        ),
        ((nn.Conv2d(4, 6, 3),), {}, "a Conv2d poses a problem together with its input's shape, which is missing"),
        ((nn.Conv2d(4, 6, 3), X), {"stride": 2}, "`stride` belongs to an input and its weight; the module says it"),
        (("ic4ih8oc6kh3",), {"padding": 1}, "`padding` belongs to an input and its weight; the problem says it itself"),
        (("ic4ih8oc6kh3",), {"flip": True}, "`flip` belongs to an input and its weight; the problem says it itself"),
        (("ic4ih8oc6kh3", W), {}, "a problem needs no weight, got one beside 'ic4ih8oc6kh3'"),
        ((X,), {}, "an input tensor poses a problem together with its weight, which is missing"),
        ((X, (6, 4, 3, 3)), {}, "`weight` must be a tensor, got (6, 4, 3, 3)"),
        ((X, W), {"residual": 3}, "`residual` must be a tensor, got 3"),
        ((X, W), {"padding": ((0, 1, 2), 1)}, "`padding` must be an int, or 2 ints or pairs of ints"),
        ((X, W), {"direction": "sideways"}, "direction must be one of"),
        ((X, W.to("meta")), {}, "`weight` must be on cpu like `input`, got one on meta"),
        ((X.to_sparse(), W), {}, "`input` must be a dense tensor, got one stored as torch.sparse_coo"),
        ((nn.Conv2d(4, 6, 3), (1, 4, 8)), {}, "(the shape (1, 4, 8) was read as one image without a batch)"),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else str(value)[:40],
)
def test_bad_questions_are_one_sentence(given: tuple[Any, ...], named: dict[str, Any], words: str) -> None:
    for function in (cw.problem, lambda *what, **how: cw.find(*what, mode="heuristic", **how)):
        with pytest.raises(BadInput, match=re.escape(words)) as said:
            function(*given, **named)
        assert len(str(said.value)) < 250


def test_a_shape_is_expected_and_not_a_tensor() -> None:
    said = r"^`input` must be a shape, for example \(8, 3, 32, 32\), got a Tensor of shape \(2, 4, 8, 8\)$"
    with pytest.raises(BadInput, match=said):
        ConvProblem.of(X, W)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"^`weight` must be a shape, .* got a Tensor of shape \(6, 4, 3, 3\)$"):
        ConvProblem.of((2, 4, 8, 8), W)  # type: ignore[arg-type]


def test_find_takes_whatever_poses_a_problem() -> None:
    module = nn.Conv2d(4, 6, 3, padding=1)
    found = cw.find(module, (2, 4, 8, 8), mode="heuristic")
    assert (found.problem, found.device.kind) == (cw.problem(module, X), "cpu")
    asked: dict[str, Any] = {"padding": ((0, 1), (1, 1)), "flip": True}
    assert cw.find(X, W, mode="heuristic", **asked).problem == cw.problem(X, W, **asked)
    residual = randn(2, 6, 6, 6, dtype=torch.float32)
    assert cw.find(X, W, residual=residual, mode="heuristic").problem.epilogue.residual
    assert cw.find(X.to("meta"), W.to("meta"), mode="heuristic", device="cpu").problem == cw.problem(X, W)


def test_a_store_may_be_named_by_its_path(tmp_path: Path) -> None:
    path, module = tmp_path / "own.sqlite", nn.Conv2d(2, 4, 3)
    example = torch.ones(1, 2, 5, 5)
    found = cw.find(module, example, mode="quick", budget_us=30_000, store=path)
    with cw.Store.open(path) as store:
        assert store.problems(found.problem.key)
        known = len(store.problems())
    cw.tune(nn.Conv2d(2, 8, 3), example, mode="quick", budget_us=30_000, store=str(path))
    with cw.Store.open(path) as store:
        assert len(store.problems()) > known
    cw.advise(module, example, mode="heuristic", store=str(path))
    assert cw.tune(module, example, mode="heuristic", store=cw.Store.open(None)).problems
    for ask in (
        lambda: cw.find("ic4ih8oc6kh3", mode="heuristic", store=3),  # type: ignore[arg-type]
        lambda: cw.tune(module, example, mode="heuristic", store=3),  # type: ignore[arg-type]
        lambda: cw.advise(module, example, mode="heuristic", store=3),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            BadInput, match="`store` must be a Store, its path or URL, or None for this process's own, got"
        ):
            ask()
