"""The table of a hand-written wrapper and its cures, made of the record of `wrapper_clinic.py`."""

from __future__ import annotations

from pages.records import Lines


def table(lines: Lines) -> str:
    """A hand-written wrapper, cure by cure."""
    head = "| with this cure as well | µs a call | PyTorch, µs | times as long |\n|---|---|---|---|"
    rows = []
    for line in lines:
        ours_us, torch_us = line["ours_us"], line["torch_us"]
        rows.append(f"| {line['cure']} | {ours_us:.1f} | {torch_us:.1f} | {ours_us / torch_us:.2f} |")
    known, words = lines[0]["conditions"], ("driver", "cudnn", "torch")
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in words)])
    about = (
        f"{where}; `{lines[0]['problem']}`, TF32 allowed; whole calls on an empty queue, the least of several rounds."
    )
    return "\n".join([head, *rows, "", about])
