"""The table of whole networks as engines, made of the record of `whole_networks.py`: the last line of each counts."""

from __future__ import annotations

from typing import Any

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
_KEY = ("network", "batch", "dtype", "size", "tf32")


def table(lines: Lines) -> str:
    """Each network with the times of an engine, of `torch.compile` and of the best that PyTorch itself does."""
    lines = list({tuple(line.get(name) for name in _KEY): line for line in lines}.values())
    lines.sort(key=lambda line: (line["dtype"] != "fp16", line["dtype"], -line["batch"], line["size"] or 0))
    body = "\n".join(map(_row, lines))
    ratios = [Interval(1 / each["value"], 1 / each["high"], 1 / each["low"])
              for each in (line["ratio"]["ratio"] for line in lines)]  # fmt: skip
    mean = geometric_mean(ratios)
    assert mean is not None
    known = lines[0]["conditions"]
    where = ", ".join([known["device"], *(f"{word} {known[word]}" for word in ("threads", "torch") if word in known)])
    return (
        "| network | type | batch | engine | `torch.compile` | PyTorch | times faster than the best | built in |\n"
        f"|---|---|---|---|---|---|---|---|\n{body}\n\n"
        f"{where}; of one call, in a process whose store was empty; {_PYTORCH[_on(known)]}; "
        f"{mean.value:.2f} times as fast as the best in the geometric mean."
    )


_PYTORCH = {
    "cuda": "PyTorch in its better layout, in a CUDA graph; `torch.compile` with `reduce-overhead`, channels last",
    "cpu": "PyTorch in its better layout; `torch.compile` with frozen weights, channels last",
}


def _on(known: dict[str, Any]) -> str:
    return "cuda" if "driver" in known else "cpu"


def _row(line: dict[str, Any]) -> str:
    us = line["us"]
    own = min(time_us for name, time_us in us.items() if name not in (*_OURS, *_COMPILED))
    compiled = min((us[name] for name in _COMPILED if name in us), default=None)
    called, size = _CALLED[line["network"]], line["size"]
    cells = [
        called + (f", {size}x{size}" if size else ""), _type(line), str(line["batch"]), _time(us["engine"]),
        "–" if compiled is None else _time(compiled), _time(own), f"{1 / line['ratio']['ratio']['value']:.2f}",
        f"{line['built_s']:.0f} s",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _type(line: dict[str, Any]) -> str:
    """On a GPU fp32 may be multiplied as TF32."""
    is_tf32 = line["dtype"] == "fp32" and _on(line["conditions"]) == "cuda" and line.get("tf32") == "on"
    return "TF32" if is_tf32 else str(line["dtype"])


def _time(us: float) -> str:
    return f"{us:,.0f} µs" if us < 1e4 else f"{us / 1e3:,.1f} ms"
