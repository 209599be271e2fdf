"""Whole networks as engines, as tables and in one paragraph, made of the records of `whole_networks.py`.

Of several measurements of one network, the one in which the best of the others was fastest counts: on a slow host
`torch.compile` takes up to 1.4 times as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pages.records import Lines

from convwright.core.finding import Interval
from convwright.report.benchmarks.table import geometric_mean

_CALLED = {
    "resnet18": "ResNet-18", "resnet50": "ResNet-50", "mobilenet_v3_large": "MobileNetV3-L",
    "mobilenet_v3_small": "MobileNetV3-S", "convnext_tiny": "ConvNeXt-T", "efficientnet_b0": "EfficientNet-B0",
    "densenet121": "DenseNet-121", "regnet_y_3_2gf": "RegNetY-3.2GF", "deeplabv3_resnet50": "DeepLab-V3-ResNet-50",
    "unet": "U-Net with group norms", "unet512": "U-Net",
}  # fmt: skip
_OURS, _COMPILED = ("engine", "run"), ("compile", "autotune")
_SHOWN = {"network": "resnet50", "dtype": "fp16", "batch": 32}


class Comparison(NamedTuple):
    """Times of one call in microseconds."""

    name: str
    engine_us: float
    compiled_us: float
    own_us: float


def table(lines: Lines) -> str:
    """Each network with the times of an engine, of `torch.compile` and of the best that PyTorch itself does."""
    lines = _one_each(lines)
    lines.sort(key=lambda line: (line["dtype"] != "fp16", line["dtype"], -line["batch"], line["size"] or 0))
    body = "\n".join(map(_row, lines))
    known = lines[0]["conditions"]
    return (
        "| network | type | batch | engine | `torch.compile` | PyTorch | times faster than the best | built in |\n"
        f"|---|---|---|---|---|---|---|---|\n{body}\n\n"
        f"{_where(known)}; of one call, in a process whose store was empty; {_PYTORCH[_on(known)]}; "
        f"{_COMPILED_BY[_on(known)]}; "
        f"{_mean(lines):.2f} times as fast as the best in the geometric mean."
    )


def autotuned(lines: Lines) -> str:
    """Each network beside `max-autotune` of `torch.compile`, and what that takes."""
    body = "\n".join(map(_autotuned_row, lines))
    return (
        "| network | type | batch | engine | `max-autotune` | PyTorch | times faster than the best | built in "
        f"| autotuned in |\n|---|---|---|---|---|---|---|---|---|\n{body}\n\n"
        f"{_where(lines[0]['conditions'])}; of one call; {_PYTORCH['cuda']}."
    )


def in_short(lines: Lines) -> str:
    """One network in words, and the mean of all."""
    lines = _one_each(lines)
    shown = next(line for line in lines if all(line[name] == value for name, value in _SHOWN.items()))
    compiled_us = _compiled_us(shown)
    assert compiled_us is not None
    built_s = [line["built_s"] for line in lines]
    return (
        f"{_CALLED[shown['network']]} in {shown['dtype']} with a batch of {shown['batch']} takes "
        f"{_time(_own_us(shown))} in PyTorch, {_time(compiled_us)} with `torch.compile` and "
        f"{_time(shown['us']['engine'])} as an engine. Over {len(lines)} settings of "
        f"{len({line['network'] for line in lines})} networks, the engine is {_mean(lines):.2f} times as fast as the "
        f"faster of the two (geometric mean; {_where(lines[0]['conditions'])}). It takes "
        f"{min(built_s):.0f} to {max(built_s):.0f} s to build."
    )


def compared(lines: Lines) -> list[Comparison]:
    """Each network in fp16 or TF32 with a batch of 32, for a drawing: the one that gains most beside PyTorch first."""
    rows = []
    for line in _one_each(lines):
        compiled_us, kind = _compiled_us(line), _type(line)
        if compiled_us is not None and line["batch"] == 32 and kind in ("fp16", "TF32"):
            name = f"{_CALLED[line['network']]}, {kind}"
            rows.append(Comparison(name, line["us"]["engine"], compiled_us, _own_us(line)))
    return sorted(rows, key=lambda row: row.own_us / row.engine_us, reverse=True)


def _one_each(lines: Lines) -> Lines:
    chosen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        key = (line["network"], line["batch"], line["size"], _type(line))
        if key not in chosen or _others_us(line) <= _others_us(chosen[key]):
            chosen[key] = line
    return list(chosen.values())


def _others_us(line: dict[str, Any]) -> float:
    return float(min(time_us for name, time_us in line["us"].items() if name not in _OURS))


def _mean(lines: Lines) -> float:
    """How many times as fast as the best of the others."""
    ratios = [Interval(1 / each["value"], 1 / each["high"], 1 / each["low"])
              for each in (line["ratio"]["ratio"] for line in lines)]  # fmt: skip
    mean = geometric_mean(ratios)
    assert mean is not None
    return mean.value


def _where(known: dict[str, Any]) -> str:
    return ", ".join([known["device"], *(f"{word} {known[word]}" for word in ("threads", "torch") if word in known)])


_PYTORCH = {
    "cuda": "PyTorch in its better layout, in a CUDA graph",
    "cpu": "PyTorch in its better layout",
}
_COMPILED_BY = {
    "cuda": "`torch.compile` with `reduce-overhead`, channels last",
    "cpu": "`torch.compile` with frozen weights, channels last",
}


def _on(known: dict[str, Any]) -> str:
    return "cuda" if "driver" in known else "cpu"


def _row(line: dict[str, Any]) -> str:
    us, own, compiled = line["us"], _own_us(line), _compiled_us(line)
    called, size = _CALLED[line["network"]], line["size"]
    cells = [
        called + (f", {size}x{size}" if size else ""), _type(line), str(line["batch"]), _time(us["engine"]),
        "–" if compiled is None else _time(compiled), _time(own), f"{1 / line['ratio']['ratio']['value']:.2f}",
        f"{line['built_s']:.0f} s",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _autotuned_row(line: dict[str, Any]) -> str:
    """`max-autotune` compiles for minutes, but not in the row for which its kernels were compiled before."""
    took = "–" if line.get("kernels_at_hand") else f"{line['autotuned_s']:.0f} s"
    return f"{_row(line)} {took} |"


def _own_us(line: dict[str, Any]) -> float:
    """The best that PyTorch does without a compiler."""
    return float(min(time_us for name, time_us in line["us"].items() if name not in (*_OURS, *_COMPILED)))


def _compiled_us(line: dict[str, Any]) -> float | None:
    return min((line["us"][name] for name in _COMPILED if name in line["us"]), default=None)


def _type(line: dict[str, Any]) -> str:
    """On a GPU fp32 may be multiplied as TF32."""
    is_tf32 = line["dtype"] == "fp32" and _on(line["conditions"]) == "cuda" and line.get("tf32") == "on"
    return "TF32" if is_tf32 else str(line["dtype"])


def _time(us: float) -> str:
    return f"{us:,.0f} µs" if us < 1e4 else f"{us / 1e3:,.1f} ms"
