"""The tables of whole models, made of records of `enable_models.py`."""

from __future__ import annotations

from typing import Any

from pages.records import Lines

_WHERE = ("threads", "torch", "torchvision", "cudnn", "triton", "python", "system")


def table(lines: Lines) -> str:
    """Whole models under ``cw.enable()``, beside PyTorch's own convolutions."""
    head = (
        "| model | computed in | `cw.enable()`, ms | PyTorch, ms | of PyTorch's time | error | PyTorch's |\n"
        "|---|---|---|---|---|---|---|"
    )
    rows = []
    for line in lines:
        ratio, errors = line["ratio"]["ratio"], line["relative_l2"]
        times = f"{line['ours_us'] / 1e3:.2f} | {line['torch_us'] / 1e3:.2f}"
        among = f"{ratio['value']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
        cells = line["model"], _computed_in(line), times, among, f"{errors['ours']:.1e}", f"{errors['torch']:.1e}"
        rows.append(f"| {' | '.join(cells)} |")
    known = lines[0]["conditions"]
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in _WHERE if word in known)])
    how = "the share of PyTorch's time is the median over rounds in which both ran"
    return "\n".join([head, *rows, "", f"{where}; batch {lines[0]['batch']}, no gradient; {how}."])


def _computed_in(line: dict[str, Any]) -> str:
    known = line["conditions"]
    on_gpu = "cuda" in known
    if line.get("autocast"):
        return "fp16, by autocast" if on_gpu else "bf16, by autocast"
    return "fp32" if not on_gpu else "fp32, TF32 on" if known["tf32"] == "allowed" else "fp32, TF32 off"
