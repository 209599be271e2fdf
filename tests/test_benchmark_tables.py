"""The README's tables: each figure comes from a line of a record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import profiled_kernels
import pytest
import tables
from pages import cpu_zoo, engines, few_channels, gtc, models, own_kernels, padding_sweep, profiles

ROOT = Path(__file__).resolve().parents[1]


def line(problem: str, batch: int, ratio: float, outcome: str, choice: str = "torch/onednn") -> dict[str, Any]:
    return {
        "benchmark": "cpu zoo", "problem": problem, "batch": batch, "choice": choice, "outcome": outcome,
        "ratio": {"value": ratio, "low": ratio, "high": ratio}, "search_mode": "full",
        "ours_us": {"value": 10.0 * ratio}, "torch_us": {"value": 10.0},
        "conditions": {"device": "a cpu", "threads": "2", "torch": "2.13", "python": "3.11", "system": "Linux"},
    }  # fmt: skip


def test_the_zoo_by_batch_and_kind() -> None:
    lines = [
        line("ic8ih8oc8kh1", 1, 0.5, "fast"), line("ic9ih8oc8kh1", 1, 2.0, "slow"),
        line("ic8ih9oc8kh3", 1, 1.0, "same"), line("ic8ih1oc8kh1", 8, 0.25, "fast"),
        line("g8ic8ih9oc8kh3", 8, 1.0, "ambiguous"), line("ic8ih9oc8kh7", 8, 0.5, "fast", "torch/default"),
    ]  # fmt: skip
    head, _, *rows = cpu_zoo.table(lines).splitlines()
    assert head.split(" | ")[3:7] == ["FAST", "SAME", "SLOW", "AMBIGUOUS"]
    assert rows[:7] == [
        "| 1 | 1x1 | 2 | 1 | 0 | 1 | 0 | 1.00 (1.00 to 1.00) | 2.00 | 0.50 |",
        "| 1 | 3x3 | 1 | 0 | 1 | 0 | 0 | 1.00 (1.00 to 1.00) | 1.00 | 1.00 |",
        "| 8 | larger filters | 1 | 1 | 0 | 0 | 0 | 2.00 (2.00 to 2.00) | 2.00 | 2.00 |",
        "| 8 | groups | 1 | 0 | 0 | 0 | 1 | 1.00 (1.00 to 1.00) | 1.00 | 1.00 |",
        "| 8 | 1x1 images | 1 | 1 | 0 | 0 | 0 | 4.00 (4.00 to 4.00) | 4.00 | 4.00 |",
        "| 1 | **all** | 3 | 1 | 1 | 1 | 0 | 1.00 (1.00 to 1.00) | 2.00 | 0.50 |",
        "| 8 | **all** | 3 | 2 | 0 | 0 | 1 | 2.00 (2.00 to 2.00) | 4.00 | 1.00 |",
    ]
    assert rows[-1].endswith("1 of the FAST are PyTorch's own call on both sides: other work disturbed them.")


def test_where_only_the_look_up_is_slow_that_is_said() -> None:
    lines = [line("ic8ih8oc8kh1", 1, 1.5, "slow"), line("ic9ih8oc8kh1", 1, 1.04, "slow", "torch/default")]
    assert cpu_zoo.table(lines).endswith(
        "In 1 of the 2 SLOW rows PyTorch's own call is what was chosen, takes at most 10 µs, "
        "and finding that out 0.4 to 0.4 µs."
    )


def test_whole_models() -> None:
    known = {"device": "a cpu", "threads": "2", "torch": "2", "torchvision": "0", "python": "3", "system": "Linux"}
    lines = [{
        "model": "net", "batch": 1, "relative_l2": {"ours": 2e-7, "torch": 3e-7}, "ours_us": 9000.0,
        "torch_us": 10_000.0, "ratio": {"ratio": {"value": 0.9, "low": 0.89, "high": 0.91}}, "conditions": known,
    }]  # fmt: skip
    assert models.table(lines).splitlines()[2:] == [
        "| net | fp32 | 9.00 | 10.00 | 0.900 (0.890 to 0.910) | 2.0e-07 | 3.0e-07 |", "",
        "a cpu, threads 2, torch 2, torchvision 0, python 3, system Linux; batch 1, no gradient; "
        "the share of PyTorch's time is the median over rounds in which both ran.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("autocast", "known", "told"),
    [
        (True, {}, "bf16, by autocast"), (True, {"cuda": "13", "tf32": "allowed"}, "fp16, by autocast"),
        (False, {"cuda": "13", "tf32": "allowed"}, "fp32, TF32 on"),
        (False, {"cuda": "13", "tf32": "not allowed"}, "fp32, TF32 off"),
    ],
)  # fmt: skip
def test_a_model_is_told_with_what_it_was_computed_in(autocast: bool, known: dict[str, str], told: str) -> None:
    line = {
        "model": "net", "batch": 1, "relative_l2": {"ours": 0.0, "torch": 0.0}, "ours_us": 1.0, "torch_us": 1.0,
        "ratio": {"ratio": {"value": 1.0, "low": 1.0, "high": 1.0}}, "autocast": autocast,
        "conditions": {"device": "a gpu", **known},
    }  # fmt: skip
    assert models.table([line]).splitlines()[2].startswith(f"| net | {told} | 0.00 |")


def test_a_table_replaces_what_stands_between_its_markers() -> None:
    start, end = "<!-- table: cpu-zoo -->", tables.END
    readme = f"before\n<!-- table: find -->\nother\n{end}\n{start}\nold\n{end}\nafter"
    changed = tables.written(readme, "cpu-zoo", "new")
    assert changed == readme.replace("old", "new")
    assert tables.written("no markers", "cpu-zoo", "new") == "no markers"


def found(layout: str, setting: str, **times_us: float) -> dict[str, Any]:
    rows = {
        name.replace("_", "/"): {
            "id": f"{name.replace('_', '/')}[a=1]", "workspace_bytes": 2000, "allowed": time_us < 50,
            "time_us": {"value": time_us, "low": time_us - 1, "high": time_us + 1}, "relative_l2": 1e-7,
            "scaled_max": 3.5, "why": "",
        }
        for name, time_us in times_us.items()
    }  # fmt: skip
    rows = {f"{name}, fp32": row for name, row in rows.items()}
    untimed = {
        "id": "cudnn/late",
        "time_us": None,
        "workspace_bytes": None,
        "allowed": False,
        "why": "no time was left",
    }
    return {
        "benchmark": "gtc", "name": "stem", "setting": setting, "layout": layout, "failure": None, "budget_s": 5.0,
        "baseline": "torch/default, fp32", "choice": "cudnn/fft[a=1]", "refused": {"cudnn/winograd": "not for 7x7"},
        "algorithms": {**rows, "cudnn/late, fp32": untimed}, "date": "2026-01-02T03:04:05",
        "conditions": {"device": "a GPU", "cudnn": "9"},
    }  # fmt: skip


def test_the_page_of_every_algorithm(tmp_path: Path) -> None:
    lines = [
        found("nchw", "TF32 off", torch_default=20.0, cudnn_fft=10.0, cudnn_gemm=99.0),
        found("nhwc", "TF32 off", torch_default=30.0, cudnn_fft=5.0),
        {**found("nhwc", "fp16"), "failure": "it died"},
    ]
    lines[0]["algorithms"]["relayout(nhwc, cudnn/fft), fp32"] = {
        **lines[0]["algorithms"]["torch/default, fp32"], "time_us": {"value": 30.0, "low": 29.0, "high": 31.0}
    }  # fmt: skip
    made = gtc.page(lines)
    assert "| stem | TF32 off | NCHW | 20.00 | `cudnn/fft` | NHWC | 5.00 | 4.00 |" in made
    table = made.partition("### TF32 off, stem\n\n")[2].splitlines()
    assert table[2:6] == [
        "| `cudnn/fft` | fp32 | 10.00 ± 1.00 | 2 kB | 1.0e-07 (3.5) | 5.00 ± 1.00 | 2 kB | 1.0e-07 (3.5) |",
        "| `torch/default` | fp32 | 20.00 ± 1.00 | 2 kB | 1.0e-07 (3.5) | 30.00 ± 1.00 | 2 kB | 1.0e-07 (3.5) |",
        "| `cudnn/gemm` | fp32 | 99.00 ± 1.00 × | 2 kB | 1.0e-07 (3.5) | – | – | – |",
        "",
    ]
    assert "relayout" not in made, "what is rewritten and no faster than PyTorch's own call"
    assert "NCHW, not timed: `cudnn/late` (no time was left)." in made
    assert "NHWC, refused: `cudnn/winograd` (not for 7x7)." in made
    assert "fp16, stem" not in made
    assert "a GPU, cudnn 9, 2026-01-02." in made
    (tmp_path / "images").mkdir()
    gtc.draw(lines, tmp_path)
    assert ">4.0x</text>" in (tmp_path / "images" / "gtc.svg").read_text()


def test_a_generated_page_is_in_the_navigation_once() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    for page in tables.PAGES:
        file = ROOT / "docs" / page.file
        assert file.exists() == page.record.exists(), "python benchmarks/tables.py --write makes it"
        once = tables.in_navigation(site, page)
        assert once.count(f"{page.title}: {file.name}") == 1
        assert tables.in_navigation(once, page) == once
        assert (once == site) == file.exists()


def with_channels(at: int, what: str, ours_us: float) -> dict[str, Any]:
    def known(value: float) -> dict[str, float]:
        return {"value": value, "low": value / 2, "high": 2 * value}

    return {
        "benchmark": "few channels", "figure": "size", "at": at, "problem": f"ic1ih{at}oc1kh3", "what": what,
        "us": {"ours": known(ours_us), "torch": known(8.0)}, "ratio": known(ours_us / 8.0), "outcome": "fast",
        "relative_l2": {"ours": 1e-7, "torch": 2e-7}, "date": "2026-01-02T03:04:05",
        "conditions": {"device": "a GPU", "cudnn": "9", "cache": "cold"},
    }  # fmt: skip


def test_the_page_of_few_channels(tmp_path: Path) -> None:
    lines = [with_channels(at, what, at / 16) for at in (64, 32) for what in ("forward", "forward and backward")]
    made = few_channels.page(lines)
    rows = [row for row in made.splitlines() if row.startswith("| `")]
    assert rows[0] == "| `ic1ih32oc1kh3` | forward | 2.0 ± 1.5 | 8.0 ± 6.0 | 4.00 (2.00 to 8.00) | 1.0e-07 | 2.0e-07 |"
    assert [row.split(" | ")[0][2:] for row in rows] == ["`ic1ih32oc1kh3`"] * 2 + ["`ic1ih64oc1kh3`"] * 2
    shown = re.findall(r"\]\((.*)\)", made)
    few_channels.draw(lines, tmp_path)
    assert [(tmp_path / each).is_file() for each in shown] == [True]
    assert "One output" not in made, "a figure without a line"


def padded(name: str, ours_us: float, torch_us: float, **others_us: float) -> dict[str, Any]:
    times_us = {"triton/direct[warps=1]": ours_us, "torch/default": torch_us}
    times_us |= {f"cudnn/{other.replace('_', '-')}": time_us for other, time_us in others_us.items()}
    known = {"measurement": {"conditions": [], "samples": 9, "errors": []}, "remembered": False}
    return {
        "benchmark": "bench", "suite": "padding-sweep", "name": name, "problem": "ic3ih8oc8kh3", "at": {},
        "device": "a gpu", "date": "2026-11-26T00:00:00+00:00", "tf32": False, "failure": None, "outcome": "faster",
        "choice": "triton/direct[warps=1]", "baseline": "torch/default", "limit_us": 1.0, "share": 0.5,
        "times_faster": dict.fromkeys(("value", "low", "high"), torch_us / ours_us), "remark": None, "unstable": None,
        "times_us": {each: dict.fromkeys(("value", "low", "high"), time_us) for each, time_us in times_us.items()},
        "candidates": [{"id": each, "allowed": True, **known} for each in times_us], "refusals": [],
        "conditions": {"device": "a gpu", "driver": "1.2"},
    }  # fmt: skip


def test_the_page_of_padding_and_width(tmp_path: Path) -> None:
    lines = [
        padded("p0-w220", 2.0, 4.0, implicit_gemm=8.0, fft=16.0), padded("p0-w221", 8.0, 32.0, implicit_gemm=32.0),
        padded("p1-w220", 4.0, 6.0, implicit_gemm=5.0),
    ]  # fmt: skip
    text = padding_sweep.page(lines)
    assert "Over 3 problems the choice is 2.29 times as fast as PyTorch's own call, 1.50 to 4.00." in text
    assert "| 0 | 11.3 | 16.0 | – | – | 16.0 (1 of 2) | – | – | 4.0 | 2.83 |" in text
    assert "| 1 | 6.0 | 5.0 | – | – | – | – | – | 4.0 | 1.50 |" in text
    padding_sweep.draw(lines, tmp_path)
    assert "<svg" in (tmp_path / "images" / "padding-sweep.svg").read_text()


def test_our_own_kernels_by_the_last_line_of_each_problem() -> None:
    def told(us: dict[str, float], setting: str) -> dict[str, Any]:
        return {
            "setting": setting, "problem": "ic8ih8oc8kh1 dt:fp32 dir:forward ep:none", "conditions": WHERE,
            "us": {name: {"value": value} for name, value in us.items()}, "relative_l2": dict.fromkeys(us, 1e-7),
        }  # fmt: skip

    cold = "suite, forward, fp32, nchw, cold cache"
    lines = [
        told({"default": 9.0, "benchmark": 9.0, "triton/direct[rows=1]": 1.0}, cold),
        told({"default": 8.0, "benchmark": 6.0, "triton/a-tf32-packed[b=1]": 1.0, "triton/a-3xtf32[b=1]": 3.0}, cold),
        told({"default": 8.0, "benchmark": 9.0, "triton/direct[rows=1,packed=1]": 16.0}, "suite, forward, fp32, nchw"),
    ]
    made = own_kernels.table(lines)
    assert made.splitlines()[2:4] == [
        "| `ic8ih8oc8kh1 dt:fp32` | cold | 6.0 | `triton/a-3xtf32` | 3.0 | 2.00 | 1.0e-07 | 1.0e-07 |",
        "| `ic8ih8oc8kh1 dt:fp32` | hot | 8.0 | `triton/direct[…,packed=1]` | 16.0 | 0.50 | 1.0e-07 | 1.0e-07 |",
    ]
    assert made.splitlines()[5].startswith("a gpu, torch 2.11;")


WHERE = {"device": "a gpu", "torch": "2.11"}


def test_what_a_profiler_saw_belongs_to_the_candidate_whose_kernels_came_then(tmp_path: Path) -> None:
    """Packing ahead of a kernel, and sums of parts behind it; of each algorithm the fastest, the fastest first."""
    problem = "g192mb32ic192ih28oc192kh7ph3 dt:fp16"
    times = {
        "default": 9.0,
        "triton/direct[rows=8]": 30.0,
        "triton/banded-gemm[bp=14]": 18.0,
        "triton/direct[rows=4]": 25.0,
    }
    line = {
        "problem": problem, "us": {name: {"value": us, "low": us, "high": us} for name, us in times.items()},
        "conditions": {"device": "a GPU"},
    }  # fmt: skip
    kernels = {"bands": 6000, "banded_gemm": 18000, "void at::copy(int)": 3000, "direct": 24000, "sum_of_parts": 4000}
    waits = [f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio" for name in ("wait", "barrier")]
    head = ["Kernel Name", *profiled_kernels.METRICS.values(), *waits]
    rows = [[name, str(ns), *["7"] * (len(profiled_kernels.METRICS) - 1), "1.5", "2.5"] for name, ns in kernels.items()]
    table = [head, [""] * len(head), *rows]
    profile, out = tmp_path / "profile.csv", tmp_path / "lines.jsonl"
    profile.write_text("==PROF== x\n" + "".join(",".join(f'"{each}"' for each in row) + "\n" for row in table))
    profiled_kernels.read([line], profile, 2, out)
    told = [json.loads(text) for text in out.read_text().splitlines()]
    banded, direct = "triton/banded-gemm[bp=14]", "triton/direct[rows=4]"
    assert [each["candidate"] for each in told] == [banded, banded, direct, direct, direct]
    assert [each["us"] for each in told] == pytest.approx([6.0, 18.0, 3.0, 24.0, 4.0])
    assert told[1]["waits"] == {"barrier": 2.5, "wait": 1.5}
    row = profiles.table(told).splitlines()[2]
    assert row.startswith(
        "| 7x7, 32 x 192 x 28x28, fp16, nchw | `triton/banded-gemm` | 18.0 | 5.8 | 6.2 | 35 % | 7 % |"
    )
    assert row.endswith("| barrier, 2.5 |")


def network(name: str, own: float, compiled: float | None, engine: float, **others: Any) -> dict[str, Any]:
    best = min(own, compiled or own)
    ratio = engine / best
    return {
        "network": name, "batch": 32, "dtype": "fp16", "size": None, "built_s": 20.0,
        "us": {"engine": engine, "run": engine - 1, "nchw": own + 9, "nhwc": own}
        | ({} if compiled is None else {"compile": compiled}),
        "ratio": {"ratio": {"value": ratio, "low": ratio, "high": ratio}},
        "conditions": {"device": "a gpu", "driver": "1", "torch": "2"},
    } | others  # fmt: skip


NETWORKS = [
    network("resnet50", 2000.0, 1600.0, 900.0), network("resnet50", 2000.0, 1600.0, 1000.0, built_s=40.0),
    network("densenet121", 4000.0, 5000.0, 1000.0), network("resnet18", 900.0, None, 500.0),
    network("unet", 900.0, 800.0, 500.0, dtype="bf16"), network("convnext_tiny", 900.0, 800.0, 500.0, batch=1),
    network("resnet50", 3000.0, 2500.0, 2000.0, dtype="fp32", tf32="on"),
    network("resnet50", 3000.0, 2500.0, 2000.0, dtype="fp32", tf32="off"),
]  # fmt: skip


def test_engines_in_short_take_the_last_line_of_each_network() -> None:
    assert engines.in_short(NETWORKS[:4]) == (
        "ResNet-50 in fp16 with a batch of 32 takes 2,000 µs in PyTorch, 1,600 µs with `torch.compile` and 1,000 µs as "
        "an engine. Over 3 settings of 3 networks, the engine is 2.26 times as fast as the faster of the two "
        "(geometric mean; a gpu, torch 2). It takes 20 to 40 s to build."
    )


def test_the_picture_has_fp16_and_tf32_with_a_batch_of_32_beside_a_compiler() -> None:
    assert engines.compared(NETWORKS) == [
        ("DenseNet-121, fp16", 1000.0, 5000.0, 4000.0), ("ResNet-50, fp16", 1000.0, 1600.0, 2000.0),
        ("ResNet-50, TF32", 2000.0, 2500.0, 3000.0),
    ]  # fmt: skip
