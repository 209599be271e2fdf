"""Sweeps: what is written, which problems it makes, and what cannot be in one sentence."""

from __future__ import annotations

import pytest

from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.suites.suite import Row, Suite, of_problem
from convwright.suites.sweep import Sweep, swept
from convwright.suites.variation import varied

WRITTEN = [
    ("ih=64..512:*2", (64, 128, 256, 512), True),
    ("ih=3..100:*3", (3, 9, 27, 81), True),
    ("ic=8..64:+8", tuple(range(8, 65, 8)), False),
    ("ic=1..64:+8", (1, 9, 17, 25, 33, 41, 49, 57), False),
    ("ph=0..2:+1", (0, 1, 2), False),
    ("kh=1,3,5,7", (1, 3, 5, 7), False),
    ("kh=7, 3", (7, 3), False),
    ("mb=5..5:*2", (5,), True),
]


@pytest.mark.parametrize(("text", "values", "geometric"), WRITTEN, ids=[text for text, _, _ in WRITTEN])
def test_what_is_written(text: str, values: tuple[int, ...], geometric: bool) -> None:
    sweep = Sweep.parse(text)
    assert (sweep.size, sweep.values, sweep.geometric) == (text[:2], values, geometric)


MISTAKES = [
    "ih", "ih=", "=3", "", "ih=64..512", "ih=64..512:2", "ih=64..512:*1", "ih=64..512:*0", "ih=64..512:+0",
    "ih=0..8:*2", "ih=9..8:+1", "ih=1..:+1", "ih=a,b", "ih=1,,2", "ih=-1,2", "ih=1,1", "ih=1..999999999:+1",
    "ih=1..99999999999999999999:*2", "ih=١..٣:+1",
]  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_a_bad_sweep_is_one_sentence(text: str) -> None:
    with pytest.raises(BadInput) as raised:
        Sweep.parse(text)
    assert "\n" not in str(raised.value)
    assert "got " in str(raised.value)


VARIED = [
    ("ic8ih32oc16kh3ph1", {"ih": 64}, "ic8ih64iw64oc16kh3ph1"),
    ("ic8ih32iw16oc16kh3ph1", {"ih": 64}, "ic8ih64iw16oc16kh3ph1"),
    ("ic8ih32oc16kh3ph1", {"iw": 64}, "ic8ih32iw64oc16kh3ph1"),
    ("ic8ih32oc16kh3ph1", {"g": 4, "mb": 2}, "g4mb2ic8ih32oc16kh3ph1"),
    ("ic8ih32oc16kh3ph1", {"dh": 2, "sw": 2}, "ic8ih32oc16kh3ph1dh2dw2sh2sw2"),
    # An output follows, and the padding that it told of stays.
    ("ic8ih32oc16oh32kh3", {"ih": 64}, "ic8ih64oc16kh3ph1"),
    ("ic8ih32oc16oh32kh3ph1", {"kh": 5}, "ic8ih32oc16kh5ph1"),
    ("ic8ih32iw31oc16oh32ow30kh3kw2", {"ih": 9}, "ic8ih9iw31oc16kh3kw2ph1pw0"),
    ("ic8ih32oc16oh32kh3", {"ph": 0}, "ic8ih32oc16kh3ph0"),
    # Where only the output is written, the input follows.
    ("ic8oc16oh32kh3", {"kh": 5}, "ic8ih36oc16kh5"),
    ("ic8oc16oh32kh3", {"ih": 9}, "ic8ih9oc16kh3"),
    ("ic8oc16oh32ih32kh3", {"ic": 4}, "ic4ih32oc16kh3ph1"),
    ("ic3ih10oc4kh3sh2ph1 rh:0 rw:1", {"oc": 8}, "ic3ih10oc8kh3sh2ph1 rh:0 rw:1"),
    ("ic8iw128oc8kw5pw4", {"iw": 64}, "ic8iw64oc8kw5pw4"),
    ("ic4id8ih8iw8oc4kd3", {"id": 16}, "ic4id16ih8iw8oc4kd3"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sizes", "same"), VARIED, ids=[f"{text} {sizes}" for text, sizes, _ in VARIED])
def test_a_size_is_put_into_the_text(text: str, sizes: dict[str, int], same: str) -> None:
    assert ConvProblem.parse(varied(text, sizes)) == ConvProblem.parse(same)


def test_a_key_varies_too() -> None:
    key = ConvProblem.parse("ic8ih32oc16kh3ph1 dt:fp16 tag:nhwc").key
    assert (
        ConvProblem.parse(varied(key, {"ih": 8, "iw": 8})).key
        == ConvProblem.parse("ic8ih8oc16kh3ph1 dt:fp16 tag:nhwc").key
    )


REFUSED = [
    ("ic8ih32oc16kh3", {"oh": 3}, "follows from the others: change ih, got oh=3"),
    ("ic8ih32oc16kh3", {"id": 3}, "the sizes of a problem in 2 dimensions are g, mb, ic, oc, ih, iw, kh"),
    ("ic8iw32oc16kw3", {"sh": 3}, "the sizes of a problem in 1 dimensions are"),
    ("ic8ih32oc16kh3", {"x": 3}, "got 'x'"),
    ("ic8ih32oc16kh3", {"mb": -1}, "mb=-1"),
    ("ic3ih10oc4oh10kh4ph1", {"ih": 12}, "uneven padding"),
    ("ic2ih4oc2kh1 tag:x=64/16/4/1,w=nchw,y=nchw", {"ic": 1}, "`tag` gives strides"),
]


@pytest.mark.parametrize(("text", "sizes", "sentence"), REFUSED, ids=[sentence for _, _, sentence in REFUSED])
def test_what_cannot_be_varied(text: str, sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(BadInput, match=r"^[^\n]+$") as raised:
        varied(text, sizes)
    assert sentence in str(raised.value)


def test_sweeps_multiply() -> None:
    suite = Suite("mine", "", "", "", (Row("a", "ic8ih9oc8kh3"), Row("b", "ic4ih9oc8kh3")))
    made = swept(suite, [Sweep.parse("ih=9,12"), Sweep.parse("mb=1,2,3")])
    assert len(made.rows) == len({row.name for row in made.rows}) == 12
    assert made.rows[-1].name == "b ih=12 mb=3"
    assert made.rows[-1].at == (("ih", 12), ("mb", 3))
    assert made.rows[-1].problem == ConvProblem.parse("mb3ic4ih12oc8kh3")
    assert swept(suite, []) == suite


def test_a_point_that_cannot_be_is_named() -> None:
    with pytest.raises(BadInput, match=r"^ih=2: the filter reaches over 3 elements"):
        swept(of_problem("ic8ih9oc8kh3"), [Sweep.parse("ih=8,2")])
    with pytest.raises(BadInput, match=r"^ic=3: `ic` \(=3\) must be divisible"):
        swept(of_problem("g2ic8ih9oc8kh3"), [Sweep.parse("ic=2,3")])


def test_sweeps_that_are_too_much() -> None:
    with pytest.raises(BadInput, match="each size can be swept once, got sweeps of ih, ih"):
        swept(of_problem("ic8ih9oc8kh3"), [Sweep.parse("ih=9,12")] * 2)
    many = [Sweep.parse("ih=9..900:+1"), Sweep.parse("mb=1..900:+1")]
    with pytest.raises(BadInput, match="at most 10,000 problems are made by sweeping, these sweeps make 802,800"):
        swept(of_problem("ic8ih9oc8kh3"), many)
