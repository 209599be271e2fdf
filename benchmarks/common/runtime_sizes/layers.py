"""The convolutions of two networks for images of 224 by 224, one after another, in fp16 with channels last."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.core.problem import ConvProblem

# Of each block of MobileNetV3-Large: taps, inner channels, output channels, whether it squeezes, and stride.
_BLOCKS = (
    (3, 16, 16, False, 1), (3, 64, 24, False, 2), (3, 72, 24, False, 1),
    (5, 72, 40, True, 2), (5, 120, 40, True, 1), (5, 120, 40, True, 1),
    (3, 240, 80, False, 2), (3, 200, 80, False, 1), (3, 184, 80, False, 1), (3, 184, 80, False, 1),
    (3, 480, 112, True, 1), (3, 672, 112, True, 1), (5, 672, 160, True, 2), (5, 960, 160, True, 1),
    (5, 960, 160, True, 1),
)  # fmt: skip


def resnet_50(images: int) -> list[ConvProblem]:
    found, size, c = [_layer(images, 3, 224, 64, 7, stride=2)], 56, 64
    for width, count, first in (64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2):
        for block in range(count):
            stride = first if block == 0 else 1
            if block == 0:
                found.append(_layer(images, c, size, 4 * width, 1, stride=stride))
            found.append(_layer(images, c, size, width, 1))
            found.append(_layer(images, width, size, width, 3, stride=stride))
            size //= stride
            found.append(_layer(images, width, size, 4 * width, 1))
            c = 4 * width
    return found


def mobilenet_v3_large(images: int) -> list[ConvProblem]:
    found, size, c = [_layer(images, 3, 224, 16, 3, stride=2)], 112, 16
    for taps, between, behind, squeezes, stride in _BLOCKS:
        if between != c:
            found.append(_layer(images, c, size, between, 1))
        found.append(_layer(images, between, size, between, taps, stride=stride, groups=between))
        size //= stride
        if squeezes:
            less = (between // 4 + 7) // 8 * 8
            found += [_layer(images, between, 1, less, 1), _layer(images, less, 1, between, 1)]
        found.append(_layer(images, between, size, behind, 1))
        c = behind
    return [*found, _layer(images, c, size, 6 * c, 1)]


def networks(images: int) -> Iterator[tuple[str, list[ConvProblem]]]:
    yield "ResNet-50", resnet_50(images)
    yield "MobileNetV3-Large", mobilenet_v3_large(images)


def _layer(images: int, c: int, size: int, k: int, taps: int, *, stride: int = 1, groups: int = 1) -> ConvProblem:
    return ConvProblem.of(
        (images, c, size, size), (k, c // groups, taps, taps), stride=stride, padding=taps // 2, groups=groups,
        dtype="fp16", layout="nhwc", epilogue="bias+relu",
    )  # fmt: skip
