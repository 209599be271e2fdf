"""JSON that every parser reads alike."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convwright import strict_json
from convwright.strict_json import JsonError

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(DATA)
def test_what_is_written_is_strict_and_reads_the_same(data: object) -> None:
    told = strict_json.in_words(data)
    for text in strict_json.dumps(told), strict_json.dumps(told, indent=1), strict_json.dumps(told, compact=True):
        assert text.isascii()
        assert strict_json.loads(text) == strict_json.loads(text.encode()) == told


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_does_not_have_are_not_written(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict_json.dumps({"us": [number]})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"us": NaN}', "JSON has no NaN"),
        ("[-Infinity]", "JSON has no -Infinity"),
        ("1e999", "1e999 is too large for a number"),
        ('{"us": 1, "us": 2}', "the key 'us' is there twice"),
        ('[{"a": {"b": 1, "c": 2, "b": 1}}]', "the key 'b' is there twice"),
        ("{", "Expecting property name enclosed in double quotes at character 2"),
        ("", "Expecting value at character 1"),
        (b"[\xff]", "the byte 0xff at character 2 is no text in UTF-8"),
        ("[" * 100_000, "it is nested too deeply"),
        ("9" * 5000, "Exceeds the limit"),
    ],
    ids=lambda each: repr(each)[:20],
)
def test_what_is_not_strict_is_refused_in_a_few_words(text: str | bytes, why: str) -> None:
    with pytest.raises(JsonError, match=f"^{why}"):
        strict_json.loads(text)


def test_keys_are_sorted_where_that_is_asked_for() -> None:
    assert strict_json.dumps({"b": 1, "a": {"d": 2, "c": 3}}, sort_keys=True) == '{"a": {"c": 3, "d": 2}, "b": 1}'
    assert list(json.loads(strict_json.dumps({"b": 1, "a": 2}))) == ["b", "a"]
