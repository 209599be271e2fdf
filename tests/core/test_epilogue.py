"""The words for what is fused behind a convolution."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from convwright.core.epilogue import Activation, Epilogue, activation_named
from convwright.errors import BadInput
from problem_space import ACTIVATE

YES_OR_NO = (False, True)
ALL = [Epilogue(*parts) for parts in product(YES_OR_NO, YES_OR_NO, Activation, YES_OR_NO, YES_OR_NO)]


@pytest.mark.parametrize("epilogue", ALL, ids=str)
def test_text_and_back(epilogue: Epilogue) -> None:
    assert Epilogue.parse(str(epilogue)) == epilogue


def test_only_an_empty_one_is_false() -> None:
    assert [epilogue for epilogue in ALL if not epilogue] == [Epilogue()]
    assert str(Epilogue()) == "none"


def test_the_text_has_the_order_in_which_it_is_applied() -> None:
    assert str(Epilogue(True, True, Activation.SILU, True, True)) == "scale+residual+bias+silu+accumulate"


def test_order_in_the_text_does_not_matter() -> None:
    assert Epilogue.parse("relu+bias") == Epilogue.parse("bias+relu")


@pytest.mark.parametrize("text", ["bias+bias", "relu+relu", "relu+gelu", "tanh", "bias+tanh", "+"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        Epilogue.parse(text)
    assert "got" in str(refused.value)


def test_no_activation_may_be_none() -> None:
    assert activation_named(None) is Activation.NONE
    assert activation_named("relu") is Activation.RELU


@pytest.mark.parametrize("activation", Activation)
def test_no_slope_is_steeper_than_it_says(activation: Activation) -> None:
    x = torch.linspace(-8, 8, 200_001, dtype=torch.float64)
    steepest = ACTIVATE[activation](x).diff().abs().max() / x.diff().max()
    assert 0.999 * activation.slope < steepest <= activation.slope + 1e-6
