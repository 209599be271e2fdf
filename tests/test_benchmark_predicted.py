"""The benchmark of predicted networks: what it compares, and what it says of that."""

from __future__ import annotations

from typing import Any

import predicted_networks
import pytest


def row(network: str, predicted: float, measured: float, gmacs: float | None = None) -> dict[str, Any]:
    times, alone = ({"value": predicted, "low": predicted / by, "high": predicted * by} for by in (2, 1.1))
    return {
        "benchmark": "timm", "network": network, "batch": 2, "size": 224, "predicted_us": times, "cpu_s": 3.0,
        "independent_us": alone,
        "measured_us": measured, "gmacs": gmacs,
    }  # fmt: skip


def test_every_engine_that_was_measured_is_predicted_once() -> None:
    cases = predicted_networks.engines()
    assert len(cases) == len({case.key for case in cases}) > 10
    assert {case.device for case in cases} == {"h200"}
    (newest,) = (case for case in cases if (case.network, case.batch) == ("mobilenet_v3_large", 32))
    assert newest.us == pytest.approx(464.17, abs=0.01), "the latest of three rows"
    assert newest.mj == pytest.approx(181.55, abs=0.01)


def test_times_of_timm_are_of_a_batch() -> None:
    cases = {case.network: case for case in predicted_networks.timm() if case.size == 224}
    found = cases["repghostnet_111"]
    assert (found.batch, found.gmacs) == (512, 0.18)
    assert found.us == pytest.approx(512 / 13783.41 * 1e6)


def test_what_a_file_has_is_not_predicted_again() -> None:
    cases = predicted_networks.engines()
    assert not list(predicted_networks.rows(cases, {case.key for case in cases}, limit_s=60.0))
    assert not list(predicted_networks.rows(cases, set(), limit_s=0.0))


def test_a_summary_counts_what_lies_in_the_interval() -> None:
    found = [row("a", 10.0, 12.0, 3.0), row("b", 20.0, 50.0, 2.0), row("c", 30.0, 55.0, 1.0)]
    said = predicted_networks.summary([*found, {"benchmark": "timm", "network": "d", "refused": "too large"}])
    assert "3 networks predicted, 1 refused" in said
    assert "energy" not in said
    assert "of the time per image: 1.000" in said
    assert "of GMACs alone: -1.000" in said
    assert "in the interval: 2 of 3; with independent steps it would be 0" in said
    assert "median 0.55" in said


def test_a_summary_holds_energies_against_those_that_were_measured() -> None:
    energies = [{"measured_mj": mj, "predicted_mj": {"value": 10.0}} for mj in (10.0, 8.0, 20.0)]
    found = [row("a", 10.0, 12.0) | each for each in energies] + [row("b", 20.0, 50.0)]
    assert "energy of 3: median error 25%" in predicted_networks.summary(found)
