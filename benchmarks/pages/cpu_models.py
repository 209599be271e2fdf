"""The table of whole models on a CPU, made of the record of `enable_models.py`."""

from __future__ import annotations

from pages.records import Lines


def table(lines: Lines) -> str:
    """Whole models under ``cw.enable()``, beside PyTorch's own convolutions."""
    head = (
        "| model | `cw.enable()`, ms | PyTorch, ms | of PyTorch's time | error | PyTorch's |\n|---|---|---|---|---|---|"
    )
    rows = []
    for line in lines:
        ratio, errors = line["ratio"]["ratio"], line["relative_l2"]
        times = f"{line['ours_us'] / 1e3:.2f} | {line['torch_us'] / 1e3:.2f}"
        among = f"{ratio['value']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
        rows.append(f"| {line['model']} | {times} | {among} | {errors['ours']:.1e} | {errors['torch']:.1e} |")
    known, words = lines[0]["conditions"], ("threads", "torch", "torchvision", "python", "system")
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in words)])
    how = "the share of PyTorch's time is the median over rounds in which both ran"
    about = f"{where}; fp32, batch {lines[0]['batch']}, 224 × 224, no gradient; {how}."
    return "\n".join([head, *rows, "", about])
