"""Findings carried from store to store as lines of JSON: nothing is lost, nothing bad comes in."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from convwright.core.finding import KindError, Measurement
from convwright.errors import BadInput, StoreError
from convwright.store.schema import SCHEMA_VERSION
from convwright.store.store import Store
from convwright.store.upkeep import Merged
from tuning.made import measurement

PROBLEM, DEVICE, PRINT = "ic8ih9oc8kh3", "H200", "torch 2.13"
SPREAD = (KindError("normal", 1e-7, 0.5), KindError("one infinity", float("inf"), 0.0), KindError("nan", 1.0, 2.0))
MEASURED = replace(measurement(12.5, errors=SPREAD), conditions=(("spread", "inf"), ("ort", "Zürich")), energy_mj=3.5)


@pytest.fixture
def store() -> Iterator[Store]:
    """Two findings and a search."""
    with Store.open(None) as made:
        made.record(PROBLEM, DEVICE, "torch/default", PRINT, MEASURED, None)
        made.record(PROBLEM, DEVICE, "cudnn/gemm", "cudnn 9.19", None, "ran out of memory\n(of 4 GB)")
        made.record_search(PROBLEM, DEVICE, "quick", ["torch/default", "cudnn/gemm"])
        yield made


@pytest.fixture
def other() -> Iterator[Store]:
    with Store.open(None) as made:
        yield made


def lines(store: Store) -> list[str]:
    out = StringIO()
    store.export(out)
    return out.getvalue().splitlines()


def loaded(store: Store, *given: str) -> Merged:
    return store.load(StringIO("".join(f"{line}\n" for line in given)))


def finding(created: float, fingerprint: str = PRINT, **changed: Any) -> str:
    record = {
        "kind": "finding", "problem": PROBLEM, "device": DEVICE, "candidate": "torch/default",
        "fingerprint": fingerprint, "measurement": None, "failure": f"of {created}", "created": created,
    }  # fmt: skip
    return json.dumps(record | changed)


def search(created: float, candidates: Any = ("torch/default",), **changed: Any) -> str:
    record = {
        "kind": "search", "problem": PROBLEM, "device": DEVICE, "scope": "quick",
        "candidates": candidates, "created": created,
    }  # fmt: skip
    return json.dumps(record | changed)


SCHEMA = json.dumps({"schema": SCHEMA_VERSION})


def test_what_is_exported_and_loaded_is_the_same(store: Store, other: Store) -> None:
    assert loaded(other, *lines(store)) == Merged(findings=2, searches=1, older=0)
    assert other.findings(PROBLEM, DEVICE) == store.findings(PROBLEM, DEVICE)
    assert other.findings(PROBLEM, DEVICE)["torch/default"].measurement == MEASURED
    assert other.search(PROBLEM, DEVICE, "quick") == ("torch/default", "cudnn/gemm")
    assert lines(other) == lines(store)
    assert loaded(other, *lines(store)) == Merged(findings=0, searches=0, older=3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE finding SET measurement = '{'", "^the finding about torch/default for "),
        ("UPDATE search SET candidates = ''", "^a search for "),
    ],
)
def test_what_somebody_has_damaged_by_hand_is_named(tmp_path: Path, change: str, said: str) -> None:
    where = tmp_path / "findings.sqlite"
    with Store.open(where) as made:
        made.record(PROBLEM, DEVICE, "torch/default", PRINT, MEASURED, None)
        made.record_search(PROBLEM, DEVICE, "quick", ["torch/default"])
    with closing(sqlite3.connect(where)) as database, database:
        database.execute(change)
    with (
        Store.open(where) as damaged,
        pytest.raises(StoreError, match=f"{said}{PROBLEM} on {DEVICE} is damaged in the"),
    ):
        lines(damaged)


def test_a_line_is_strict_json_and_the_first_names_the_schema(store: Store) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    first, *rest = [json.loads(line, parse_constant=refuse) for line in lines(store)]
    assert first == {"schema": SCHEMA_VERSION}
    assert [(line["kind"], line.get("candidate")) for line in rest] == [
        ("finding", "cudnn/gemm"),
        ("finding", "torch/default"),
        ("search", None),
    ]
    assert rest[1]["measurement"]["errors"][1] == {"kind": "one infinity", "relative_l2": "inf", "scaled_max": 0.0}
    assert rest[1]["measurement"]["conditions"] == [["spread", "inf"], ["ort", "Zürich"]]


def test_to_a_path_and_back(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "findings.jsonl"
    path.write_text("what was there before")
    assert store.export(path) == 3
    assert other.load(str(path)) == Merged(2, 1, 0)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_text(encoding="utf-8").splitlines() == lines(store)


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="this system has no /dev")
def test_a_device_is_written_to_and_not_replaced(store: Store) -> None:
    assert store.export("/dev/null") == 3
    assert not Path("/dev/null").is_file()


def test_the_newer_of_two_findings_wins(other: Store) -> None:
    assert loaded(other, SCHEMA, finding(100.0)) == Merged(1, 0, 0)
    assert loaded(other, SCHEMA, finding(99.0)) == Merged(0, 0, 1)
    assert other.findings(PROBLEM, DEVICE)["torch/default"].failure == "of 100.0"
    assert loaded(other, SCHEMA, finding(101.0), finding(102.0)) == Merged(2, 0, 0)
    assert other.findings(PROBLEM, DEVICE)["torch/default"].failure == "of 102.0"
    assert other.findings(PROBLEM, DEVICE)["torch/default"].created == 102.0


def test_the_newer_of_two_searches_wins(other: Store) -> None:
    assert loaded(other, SCHEMA, search(100.0, ["new"])) == Merged(0, 1, 0)
    assert loaded(other, SCHEMA, search(99.0, ["old"])) == Merged(0, 0, 1)
    assert other.search(PROBLEM, DEVICE, "quick") == ("new",)
    assert loaded(other, SCHEMA, search(101.0, ["newer"]), search(1.0, ["a"], scope="full")) == Merged(0, 2, 0)
    assert other.search(PROBLEM, DEVICE, "quick") == ("newer",)


@pytest.mark.parametrize("created", [1.0, 2e9])
def test_no_search_is_kept_where_a_finding_of_other_versions_won_or_lost(store: Store, created: float) -> None:
    """It would say that nothing need be tried, while what it rests on is not there."""
    loaded(store, SCHEMA, finding(created, "torch 2.14"), search(created, scope="full"))
    assert store.search(PROBLEM, DEVICE, "quick") is None
    assert store.search(PROBLEM, DEVICE, "full") is None


BAD = [
    ("", "Expecting value"),
    ("{", "Expecting property name"),
    ("[1]", "expected an object"),
    ('"word"', "expected an object"),
    ("{} {}", "Extra data"),
    ("[" * 100_000, "nested too deeply"),
    ("{}", "`kind` must be finding, search or observation, got None"),
    (SCHEMA, "`kind` must be finding, search or observation, got None"),
    ('{"kind": "choice"}', "`kind` must be finding, search or observation, got 'choice'"),
    ('{"kind": "finding"}', "expected the fields problem, device, candidate"),
    (finding(1.0, extra=1), "expected the fields problem, device, candidate"),
    (finding(1.0, problem=7), "`problem` must be text, got '7'"),
    (finding(1.0, problem="\ud800"), "`problem` must be text"),
    (finding(1.0, failure=[]), "`failure` must be text or null"),
    (finding(float("nan")), "JSON has no NaN"),
    (finding(-1.0), "`created` must be seconds since 1970"),
    (finding(True), "`created` must be seconds since 1970"),
    (finding(10**400), "`created` must be seconds since 1970"),
    (finding(1.0, measurement="fast"), "`measurement` must be an object or null"),
    (finding(1.0, measurement={}), "`measurement` must hold"),
    (search(1.0, "torch/default"), "`candidates` must be a list of texts"),
    (search(1.0, [1]), "`candidates` must be a list of texts"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[f"{bad[:40]} {reason[:40]}" for bad, reason in BAD])
def test_a_bad_line_is_one_sentence_with_its_number_and_nothing_comes_in(
    bad: str, reason: str, store: Store, other: Store
) -> None:
    with pytest.raises(BadInput) as raised:
        loaded(other, *lines(store), bad)
    sentence = str(raised.value)
    assert "line 5 of the file is not a line of exported findings: " in sentence
    assert reason in sentence
    assert "line 1" not in sentence
    assert "\n" not in sentence
    assert len(sentence) < 300
    assert lines(other) == [SCHEMA]


def wrong(**changed: Any) -> dict[str, Any]:
    return MEASURED.to_json() | {"errors": []} | changed


@pytest.mark.parametrize(
    "body",
    [
        wrong(device_us=None),
        wrong(device_us={"value": 1.0}),
        wrong(device_us={"value": "1.0", "low": 1.0, "high": 1.0}),
        wrong(device_us={"value": True, "low": 1.0, "high": 1.0}),
        wrong(errors=[{"kind": "normal"}]),
        wrong(errors=[{"kind": 1, "relative_l2": 1.0, "scaled_max": 1.0}]),
        wrong(conditions=[["clock_mhz", 1980]]),
        wrong(conditions=["clock_mhz"]),
        wrong(samples="31"),
        wrong(energy_mj="much"),
        wrong(peak_bytes="many"),
        wrong(doubt=1),
        wrong(paired={"own": "torch/default", "rounds": 3}),
        wrong(paired={"own": 1, "ratio": {"value": 0.5, "low": 0.4, "high": 0.6}, "rounds": 3}),
        wrong(paired={"own": "torch/default", "ratio": {"value": 0.5, "low": 0.4, "high": 0.6}, "rounds": "3"}),
        wrong(price_eur=1.0),
    ],
)
def test_a_measurement_that_is_none_does_not_come_in(body: dict[str, Any], other: Store) -> None:
    good = finding(1.0, measurement=wrong())
    assert loaded(other, SCHEMA, good) == Merged(1, 0, 0)
    other.clear()
    with pytest.raises(BadInput, match=r"line 3 of the file .*`measurement` must hold what a measurement holds"):
        loaded(other, SCHEMA, good, finding(1.0, measurement=body))
    assert lines(other) == [SCHEMA]


def test_bytes_that_are_no_text_are_a_bad_line(other: Store, tmp_path: Path) -> None:
    path = tmp_path / "findings.jsonl"
    path.write_bytes(f"{SCHEMA}\n{finding(1.0)}\n".encode() + b'{"kind": "\xff"}\n')
    with pytest.raises(
        BadInput, match=f"line 3 of {path} is not a line of exported findings: the byte 0xff at .* is no text in UTF-8"
    ):
        other.load(path)
    assert lines(other) == [SCHEMA]


@pytest.mark.parametrize("first", [finding(1.0), "{}", '{"schema": "2"}', '{"schema": true}', '{"schema": 1}', "x"])
def test_without_its_first_line_nothing_comes_in(first: str, other: Store) -> None:
    with pytest.raises(BadInput, match="line 1 of the file"):
        loaded(other, first, finding(1.0))
    assert lines(other) == [SCHEMA]


def test_an_empty_file_and_one_of_a_newer_schema_are_refused(other: Store) -> None:
    with pytest.raises(BadInput, match="the file is empty"):
        loaded(other)
    newer = json.dumps({"schema": SCHEMA_VERSION + 1})
    with pytest.raises(BadInput, match=f"^the file was .*schema {SCHEMA_VERSION + 1}, this one knows {SCHEMA_VERSION}"):
        loaded(other, newer, finding(1.0))


def test_files_that_cannot_be_opened_are_one_sentence(store: Store, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        store.load(tmp_path / "absent.jsonl")
    with pytest.raises(BadInput, match="cannot be written to"):
        store.export(tmp_path / "absent" / "findings.jsonl")
    with pytest.raises(BadInput, match="cannot be"):
        store.export(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_merge_that_fails_midway_leaves_all_as_it_was(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "findings.sqlite"
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON finding WHEN (SELECT count(*) FROM finding) = 1 "
            "BEGIN SELECT raise(ABORT, 'the disk is full'); END"
        )
    with Store.open(path) as target:
        with pytest.raises(StoreError, match="the disk is full"):
            loaded(target, *lines(store))
        assert lines(target) == [SCHEMA]
        loaded(target, SCHEMA, finding(1.0))
        assert len(lines(target)) == 2


def test_a_field_that_an_earlier_version_did_not_know_may_be_missing(other: Store) -> None:
    body = MEASURED.to_json() | {"errors": []}
    del body["energy_mj"]
    loaded(other, SCHEMA, finding(1.0, measurement=body))
    assert other.findings(PROBLEM, DEVICE)["torch/default"].measurement == replace(MEASURED, errors=(), energy_mj=None)


def test_every_field_of_a_measurement_travels(store: Store, other: Store) -> None:
    """A field that is added to Measurement must reach JSON and come back."""
    loaded(other, *lines(store))
    got = other.findings(PROBLEM, DEVICE)["torch/default"].measurement
    assert got is not None
    for name in Measurement.__slots__:
        assert getattr(got, name) == getattr(MEASURED, name), name


def interval(value: Any, low: Any, high: Any) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high}


def test_host_times_of_earlier_versions_are_ignored(other: Store) -> None:
    body = wrong(errors=[], energy_mj=None, host_us=None, prepare_host_us=interval(2.0, 1.0, 3.0))
    loaded(other, SCHEMA, finding(1.0, measurement=body))
    assert other.findings(PROBLEM, DEVICE)["torch/default"].measurement == replace(MEASURED, errors=(), energy_mj=None)


@pytest.mark.parametrize("name", ["device_us", "prepare_us"])
@pytest.mark.parametrize(
    "time_us", [interval(2.0, 3.0, 4.0), interval(2.0, 1.0, 1.5), interval("inf", 1.0, "inf"), interval("nan", 1, 2)]
)
def test_an_impossible_time_does_not_come_in(name: str, time_us: dict[str, Any], other: Store) -> None:
    with pytest.raises(BadInput, match=f"line 2 of the file .*: `{name}` must be a finite time .* got .* between"):
        loaded(other, SCHEMA, finding(1.0, measurement=wrong(**{name: time_us})))
    assert lines(other) == [SCHEMA]


@pytest.mark.parametrize("value", [-5.0, 0.0])
def test_a_call_that_takes_nothing_does_not_come_in(value: float, other: Store) -> None:
    with pytest.raises(BadInput, match=f"`device_us` must be a finite time above 0 .* got {value:g} between -6 and 2"):
        loaded(other, SCHEMA, finding(1.0, measurement=wrong(device_us=interval(value, -6.0, 2.0))))


def test_what_noise_hides_and_bounds_that_are_not_known_travel(other: Store) -> None:
    hidden, vague = interval(-0.5, -1.0, 1.0), interval(2.0, 0.0, "inf")
    assert loaded(other, SCHEMA, finding(1.0, measurement=wrong(prepare_us=hidden, device_us=vague))) == Merged(1, 0, 0)


def test_a_mark_at_the_beginning_is_no_part_of_it(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "findings.jsonl"
    path.write_text("\n".join(lines(store)), encoding="utf-8-sig")
    assert other.load(path) == Merged(2, 1, 0)
    other.clear()
    first, *rest = lines(store)
    assert loaded(other, f"\ufeff{first}", *rest) == Merged(2, 1, 0)


CLEARS, TURNS = "\x1b[2J\x07", "\u202e"  # what clears a terminal and rings, and what writes backwards


def test_control_characters_come_in_as_escapes(other: Store) -> None:
    """A terminal obeys them wherever what the store holds is printed."""
    body = wrong(conditions=[["clo\x1bck", f"1{TURNS}2"]], doubt="in\rdoubt")
    given = finding(
        1.0, f"1{CLEARS}", device=f"H{CLEARS}", candidate=f"c{TURNS}", failure="a\x1bb\nc\x9b", measurement=body
    )
    assert loaded(other, SCHEMA, given, search(1.0, [f"a{CLEARS}"], scope="s\x00")) == Merged(1, 1, 0)
    text = "\n".join(lines(other))
    assert all(letter.isprintable() for line in json.loads(f"[{text.replace(chr(10), ',')}]") for letter in str(line))
    found = other.findings(PROBLEM, "H\\x1b[2J\\x07")["c\\u202e"]
    assert (found.fingerprint, found.failure) == ("1\\x1b[2J\\x07", "a\\x1bb\nc\\x9b")
    assert found.measurement is not None
    assert found.measurement.conditions == (("clo\\x1bck", "1\\u202e2"),)
    assert found.measurement.doubt == "in\\rdoubt"
    assert other.search(PROBLEM, DEVICE, "s\\x00") == ("a\\x1b[2J\\x07",)


@pytest.mark.parametrize("bad", [finding(1.0, problem=7, extra="\x1b"), json.dumps({"kind": "finding", CLEARS: 1})])
def test_what_is_said_of_a_bad_line_holds_none(bad: str, other: Store) -> None:
    with pytest.raises(BadInput) as raised:
        loaded(other, SCHEMA, bad)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"workspace_bytes": -1}, "`workspace_bytes` must be a whole number from 0 to 1,125,899,906,842,624, got -1"),
        ({"workspace_bytes": 1.5}, "`workspace_bytes` must be a whole number from 0 to 1,125,899,906,842,624, got 1.5"),
        (
            {"workspace_bytes": 2**63},
            "`workspace_bytes` must be a whole number from 0 to 1,125,899,906,842,624, got 92",
        ),
        ({"peak_bytes": -5}, "`peak_bytes` must be a whole number from 0 to 1,125,899,906,842,624, got -5"),
        ({"samples": -3}, "`samples` must be a whole number from 0 to 1,000,000,000, got -3"),
        ({"samples": 10**100}, "`samples` must be a whole number from 0 to 1,000,000,000, got 1000000000"),
        ({"energy_mj": -0.5}, "`energy_mj` must be at least 0, got -0.5"),
        ({"energy_halfwidth_mj": -1}, "`energy_halfwidth_mj` must be at least 0, got -1"),
        (
            {"errors": [{"kind": "normal", "relative_l2": -1.0, "scaled_max": 1.0}]},
            "`relative_l2` must be at least 0, got -1",
        ),
    ],
)
def test_negative_sizes_and_absurd_counts_do_not_come_in(changed: dict[str, Any], said: str, other: Store) -> None:
    with pytest.raises(BadInput) as raised:
        loaded(other, SCHEMA, finding(1.0), finding(1.0, measurement=wrong(**changed)))
    assert str(raised.value).startswith(f"line 3 of the file is not a line of exported findings: {said}")
    assert lines(other) == [SCHEMA]
