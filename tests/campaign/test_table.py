"""Observations as a table: every one is read back as it was, and the file stays small."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

import pytest

from convwright.campaign.campaign import Campaign
from convwright.campaign.listed import worth_measuring
from convwright.campaign.parquet import read, write
from convwright.campaign.problems import SHARES, problem_at
from convwright.core.finding import Interval, KindError, Measurement
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.core.profiles import profile
from convwright.errors import BadInput
from convwright.store.store import Store

pytest.importorskip("pyarrow")
H200 = profile("h200")
POLICY = Policy(max_workspace_bytes=1 << 30)
CONDITIONS = (
    ("device", "NVIDIA H200"), ("convwright", "0.1.0"), ("torch", "2.13.0"), ("python", "3.11.7"),
    ("system", "Linux 6.8"), ("cuda", "13.0"), ("cudnn", "91900"), ("triton", "3.6.0"), ("driver", "580.65"),
    ("tf32", "allowed"), ("memory_clock_mhz", "3201"), ("throttle_reasons", "none"), ("date", "2026-01-01"),
    ("cache", "hot"), ("clock", "CudaGraphClock"), ("mode", "campaign"), ("campaign", "seed 0"),
)  # fmt: skip


def made(count: int) -> list[Observation]:
    """Observations of real candidates with made times, as many as a campaign has of each."""
    random, campaign, found, number = Random(0), Campaign("seed 0", 0, SHARES), list[Observation](), 0
    listed = []
    while len(found) < count:
        drawn = problem_at(campaign, H200, number)
        if number < 4:
            listed = worth_measuring(drawn.problem, H200, POLICY, most=24, random=random)
        number += 1
        for each in listed:
            candidate = each.candidate
            if number > 4 and candidate.inner is None:  # to list them all would take minutes
                candidate = replace(candidate, problem=drawn.problem)
            us = random.lognormvariate(4, 2)
            rounds = tuple(us * random.gauss(1, 0.01) for _ in range(random.randint(10, 18)))
            measured = Measurement(
                Interval(us, us * 0.99, us * 1.01), None, (KindError("normal", 1e-7 * us, us),), 0, 30,
                (*CONDITIONS, ("origin", drawn.origin), ("sm_clock_mhz", str(random.randint(1700, 1980))),
                 ("temperature_c", str(random.randint(40, 70))), ("problem number", str(number))),
            )  # fmt: skip
            found.append(
                Observation(
                    candidate, H200.key, each.fingerprint, Outcome.MEASURED, measured, None, rounds, POLICY,
                    "campaign", 25_000.0, 1.8e9 + random.random() * 480,
                )
            )  # fmt: skip
    return found[:count]


@pytest.fixture(scope="module")
def seen() -> list[Observation]:
    found = made(200)
    measured = found[0].measurement
    assert measured is not None
    odd = replace(
        measured, device_us=Interval(0.0, -inf, inf), prepare_us=Interval(1.0, 0.5, inf), energy_mj=3.5, peak_bytes=7,
        errors=(KindError("normal", inf, 2.0), KindError("nan", 0.0, 0.0)), doubt="unstable: a test",
    )  # fmt: skip
    found[1] = replace(found[1], measurement=odd)
    found[2] = replace(found[2], outcome=Outcome.HUNG, measurement=None, reason="its process…", rounds_us=())
    return found


def test_every_observation_is_read_back_as_it_was(seen: list[Observation], tmp_path: Path) -> None:
    file = tmp_path / "seen.parquet"
    assert write(lambda: seen, file) == len(seen)
    assert list(read(file)) == seen
    with Store.open(None) as store:
        assert store.observe(read(file)) == len(seen)
        assert store.observe(seen) == 0
        assert {each.created: each for each in store.observations()} == {each.created: each for each in seen}


def test_a_table_is_small_and_plain(seen: list[Observation], tmp_path: Path) -> None:
    import pyarrow.parquet

    file = tmp_path / "seen.parquet"
    write(lambda: seen, file)
    assert file.stat().st_size / len(seen) * 10_000 < 5e6
    rows = pyarrow.parquet.read_table(file).to_pylist()
    assert [row["time_us"] for row in rows[:1]] == [seen[0].measurement and seen[0].measurement.device_us.value]
    assert rows[2]["outcome"] == "hung"
    assert rows[2]["time_us"] is None
    assert rows[2]["origin"] == rows[0]["origin"]  # of a problem that others were measured for
    assert rows[5]["candidate"] == seen[5].candidate.id
    assert {row["kind"] for row in rows} >= {"conv", "linear"}


def test_what_is_no_table_is_refused_in_words(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    with pytest.raises(BadInput, match=r"none\.parquet cannot be read: there is no such file"):
        list(read(tmp_path / "none.parquet"))
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(BadInput, match=r"text\.parquet cannot be read: "):
        list(read(tmp_path / "text.parquet"))
    other = tmp_path / "other.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), other)
    with pytest.raises(BadInput, match="is a table, but not of observations"):
        list(read(other))
    with pytest.raises(BadInput, match=r"there is no folder .* create it first"):
        write(list, tmp_path / "no folder" / "seen.parquet")
