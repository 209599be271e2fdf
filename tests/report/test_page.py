"""Notebooks show tables of what the functions give back."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import convwright as cw
from convwright.core.finding import Finding
from convwright.core.policy import Policy
from convwright.core.profiles import profile
from convwright.settings import Mode
from convwright.tuning.choose import choose
from convwright.tuning.findings import Findings
from tuning.made import PROBLEM, candidate, finding

MODEL = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
EXAMPLE = torch.zeros(1, 4, 12, 12)


def cells(page: str, tag: str) -> list[str]:
    return [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(rf"<{tag} [^>]*>(.*?)</{tag}>", page)]


def test_findings_are_a_table_with_the_winner_in_bold() -> None:
    rows = [finding("torch/default", 100.0), finding("reference/gemm", 50.0)]
    found = Findings(PROBLEM, profile("h200"), Policy(), Mode.FULL, choose(rows, rows[0], Policy()), (), rows[0])
    page = found._repr_html_()
    assert cells(page, "th")[:2] == ["candidate", "device µs"]
    assert cells(page, "td")[:2] == ["reference/gemm", "50.00"]
    assert re.search(r'<span style="font-weight: bold[^"]*">reference/gemm</span>', page)
    assert page.startswith("<div>")
    assert page.endswith("</div>")


def test_a_predicted_network_is_a_table_of_layers() -> None:
    found = cw.predict(MODEL, EXAMPLE, device="h200", store="none")
    page = found._repr_html_()
    assert cells(page, "th")[:3] == ["step", "runs", "type"]
    assert {layer.name for layer in found.layers} <= set(cells(page, "td"))


def test_what_others_wrote_is_no_markup() -> None:
    rows = [
        finding("torch/default", 100.0),
        Finding(candidate("mine/own"), failure="<script>alert(1)</script> & [bold]"),
    ]
    found = Findings(PROBLEM, profile("h200"), Policy(), Mode.FULL, choose(rows, rows[0], Policy()), (), rows[0])
    page = found._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; [bold]" in page
    assert "<b>" not in replace(found, refusals=(cw_refusal("<b>x</b>"),))._repr_html_()


def cw_refusal(reason: str) -> object:
    from convwright.core.candidate import Refusal

    return Refusal("mine/other", reason)


@pytest.mark.parametrize(
    ("made", "column"),
    [
        (lambda: cw.find("ic8ih9oc8kh3", device="h200", mode="heuristic"), "candidate"),
        (lambda: cw.predict("ic8ih9oc8kh3", device="h200"), "90 % within"),
        (lambda: cw.tune(MODEL, EXAMPLE, device="cpu", plan_only=True), "layers"),
        (lambda: cw.advise(MODEL, EXAMPLE, mode="heuristic"), "layers"),
    ],
    ids=["find", "predict", "tune", "advise"],
)
def test_each_function_gives_back_what_a_notebook_shows_as_a_table(made, column: str) -> None:  # type: ignore[no-untyped-def]
    page = made()._repr_html_()
    assert column in cells(page, "th")
    assert len(cells(page, "td")) >= len(cells(page, "th"))


def test_an_engine_explains_itself_line_by_line() -> None:
    engine = cw.optimize(MODEL, EXAMPLE, mode="heuristic")
    said = engine.explain()
    assert isinstance(said, str)
    page = said._repr_html_()  # type: ignore[attr-defined]
    assert page.startswith("<pre>step ")
    assert page.count("\n") == said.count("\n")
