"""PyTorch's interpolation of images as resizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convwright.core.kinds.resize import Interpolation, ResizeProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.export.arguments import arguments
from convwright.engine.export.builder import Builder, Translation
from convwright.errors import ConvwrightError
from convwright.graph.layouts import dense


def resize(builder: Builder, node: Any) -> bool:
    """Interpolation of an image. Modes in which PyTorch's own kernels differ stay foreign."""
    given = arguments(node)
    x = builder.value(given["input"] if "input" in given else given["self"])
    spec, result = builder.spec(x), builder.result(node)
    interpolation = Interpolation.NEAREST if "nearest" in str(node.target) else Interpolation.LINEAR
    scales = given.get("scale_factors")
    if "input" not in given:  # the overload that takes a list of scales is not supported
        scales = [given[name] for name in given if name.startswith("scales")]
    try:
        problem = ResizeProblem(
            dense(spec), TensorSpec(result.shape, result.dtype), interpolation, bool(given.get("align_corners")),
            tuple(scales or ()),
        )  # fmt: skip
    except ConvwrightError:
        return False
    return builder.is_(node, builder.compute(builder.name(node), problem, {"x": x}))


TRANSLATIONS: Mapping[str, Translation] = {
    f"aten.upsample_{name}.{overload}": resize
    for name in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d")
    for overload in ("vec", "default")
}
