"""The kernels: a stack of 3x3 convolutions of few channels with ReLU, each of which reads the input and all layers
before it.

One kernel computes a layer. Another computes the gradient before a layer's ReLU from the gradients of all later layers,
without accumulation in memory. A third then computes the gradients of all weights and biases.

A kernel reads the index of the layer and the sizes of the images from memory, so it is compiled once for all of them.
Layers are numbered from 0. These integers are stored in fp32; ``sizes`` holds the number of images, their height and
their width. Images are NCHW: ``y`` has the channels of the input and then of all layers, ``dz`` only those of the
layers. ``w`` has the weights of all layers and then all biases.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated, derived
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead


@triton.jit
def _number(at):
    return tl.load(at).to(tl.int32)


@triton.jit
def _first_weight(layer, INPUTS: tl.constexpr, WIDTH: tl.constexpr):
    """The offset of a layer's weights; for the index after the last layer, the offset of the biases."""
    return 9 * WIDTH * (INPUTS * layer + WIDTH * (layer * (layer - 1) // 2))


@triton.jit
def _tap(plane, pixel, h, v, down, right, there, H, W):
    """The values ``down`` rows below and ``right`` columns right of each pixel, in fp32; zeros outside the image."""
    real = there & (h + down >= 0) & (h + down < H) & (v + right >= 0) & (v + right < W)
    return tl.load(plane + (pixel + (down * W + right)), mask=real, other=0.0).to(tl.float32)


@triton.jit
def layer_output(
    number, dilations, sizes, w, y,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """The channels in ``y`` of layer ``number``."""
    CHANNELS: tl.constexpr = INPUTS + WIDTH * DEPTH
    wait_for_the_kernel_ahead(OVERLAPS)
    H = _number(sizes + 1)
    W = _number(sizes + 2)
    BLOCKS = (H * W + LANES - 1) // LANES
    layer = _number(number)
    dilation = _number(dilations + layer)
    reads = INPUTS + WIDTH * layer
    pixel = tl.program_id(0) % BLOCKS * LANES + tl.arange(0, LANES)
    there = pixel < H * W
    h = pixel // W
    v = pixel % W
    image = y + tl.program_id(0) // BLOCKS * (CHANNELS * H * W)
    taps = w + _first_weight(layer, INPUTS, WIDTH)

    totals = ()
    for k in tl.static_range(WIDTH):
        bias = tl.load(w + (_first_weight(DEPTH, INPUTS, WIDTH) + WIDTH * layer + k)).to(tl.float32)
        totals += (tl.zeros((LANES,), tl.float32) + bias,)
    for channel in tl.range(reads):
        for r in tl.static_range(3):
            for s in tl.static_range(3):
                value = _tap(
                    image + channel * (H * W), pixel, h, v, (r - 1) * dilation, (s - 1) * dilation, there, H, W
                )
                more = ()
                for k in tl.static_range(WIDTH):
                    weight = tl.load(taps + ((k * reads + channel) * 9 + (3 * r + s))).to(tl.float32)
                    more += (totals[k] + value * weight,)
                totals = more
    for k in tl.static_range(WIDTH):
        result = activated(totals[k], "relu", y.dtype.element_ty).to(y.dtype.element_ty)
        tl.store(image + (reads + k) * (H * W) + pixel, result, mask=there)


@triton.jit
def layer_gradient(
    number, dilations, sizes, w, last_w, dy, y, dz, dx,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, OUTPUTS: tl.constexpr,
    OF_INPUT: tl.constexpr, LANES: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """The channels in ``dz`` of layer ``number``: the gradient before its ReLU. With OF_INPUT, the gradient ``dx`` of
    the stack's input, one channel per program; ``number`` is then -1.

    ``last_w`` are the weights of the 1x1 convolution that reads all channels, and ``dy`` is the gradient of its output.
    """
    CHANNELS: tl.constexpr = INPUTS + WIDTH * DEPTH
    OWN: tl.constexpr = 1 if OF_INPUT else WIDTH  # channels of a program
    PARTS: tl.constexpr = INPUTS if OF_INPUT else 1
    wait_for_the_kernel_ahead(OVERLAPS)
    H = _number(sizes + 1)
    W = _number(sizes + 2)
    BLOCKS = (H * W + LANES - 1) // LANES
    layer = _number(number)
    pixel = tl.program_id(0) % BLOCKS * LANES + tl.arange(0, LANES)
    there = pixel < H * W
    h = pixel // W
    v = pixel % W
    n = tl.program_id(0) // (BLOCKS * PARTS)
    first = tl.program_id(0) // BLOCKS % PARTS if OF_INPUT else INPUTS + WIDTH * layer

    totals = ()
    for own in tl.static_range(OWN):
        total = tl.zeros((LANES,), tl.float32)
        for k in tl.static_range(OUTPUTS):
            value = tl.load(dy + (n * OUTPUTS + k) * (H * W) + pixel, mask=there, other=0.0).to(tl.float32)
            total += value * tl.load(last_w + (k * CHANNELS + first + own)).to(tl.float32)
        totals += (total,)
    for later in tl.range(layer + 1, DEPTH):
        dilation = _number(dilations + later)
        reads = INPUTS + WIDTH * later
        for k in tl.static_range(WIDTH):
            plane = dz + (n * (WIDTH * DEPTH) + WIDTH * later + k) * (H * W)
            taps = w + (_first_weight(later, INPUTS, WIDTH) + (k * reads + first) * 9)
            for r in tl.static_range(3):
                for s in tl.static_range(3):
                    value = _tap(plane, pixel, h, v, (1 - r) * dilation, (1 - s) * dilation, there, H, W)
                    more = ()
                    for own in tl.static_range(OWN):
                        more += (totals[own] + value * tl.load(taps + (own * 9 + 3 * r + s)).to(tl.float32),)
                    totals = more
    for own in tl.static_range(OWN):
        if OF_INPUT:
            tl.store(dx + (n * INPUTS + first) * (H * W) + pixel, totals[own].to(dx.dtype.element_ty), mask=there)
        else:
            z = tl.load(y + (n * CHANNELS + first + own) * (H * W) + pixel, mask=there, other=0.0).to(tl.float32)
            at = dz + (n * (WIDTH * DEPTH) + WIDTH * layer + own) * (H * W) + pixel
            tl.store(at, derived(totals[own], z, "relu").to(dz.dtype.element_ty), mask=there)


@triton.jit
def weight_gradients(
    jobs, dilations, sizes, y, dz, sums,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, JOBS: tl.constexpr, TOGETHER: tl.constexpr,
    LANES: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """The gradients of all weights and biases, in the order of ``w``, for each part of the pixels; a part has the
    fourth of ``sizes`` times LANES pixels. A job is a layer and the first of TOGETHER channels that it reads."""
    CHANNELS: tl.constexpr = INPUTS + WIDTH * DEPTH
    EACH: tl.constexpr = TOGETHER * 9
    wait_for_the_kernel_ahead(OVERLAPS)
    N = _number(sizes)
    H = _number(sizes + 1)
    W = _number(sizes + 2)
    steps = _number(sizes + 3)
    job = tl.program_id(0) % JOBS
    part = tl.program_id(0) // JOBS
    layer = _number(jobs + 2 * job)
    first = _number(jobs + 2 * job + 1)
    dilation = _number(dilations + layer)
    reads = INPUTS + WIDTH * layer

    totals = ()
    for _ in tl.static_range(WIDTH * (EACH + 1)):
        totals += (tl.zeros((LANES,), tl.float32),)
    for step in tl.range(steps):
        place = (part * steps + step) * LANES + tl.arange(0, LANES)
        there = place < N * H * W
        n = place // (H * W)
        pixel = place % (H * W)
        h = pixel // W
        v = pixel % W
        # Each pixel of a channel is read once, and the taps shift the gradient instead, for all channels together.
        gradients = ()
        for k in tl.static_range(WIDTH):
            plane = dz + (n * (WIDTH * DEPTH) + WIDTH * layer + k) * (H * W)
            for r in tl.static_range(3):
                for s in tl.static_range(3):
                    gradients += (_tap(plane, pixel, h, v, (1 - r) * dilation, (1 - s) * dilation, there, H, W),)
        values = ()
        for i in tl.static_range(TOGETHER):
            at = y + (n * CHANNELS + tl.minimum(first + i, reads - 1)) * (H * W) + pixel
            values += (tl.load(at, mask=there, other=0.0).to(tl.float32),)
        more = ()
        for k in tl.static_range(WIDTH):
            for i in tl.static_range(TOGETHER):
                for tap in tl.static_range(9):
                    more += (totals[k * (EACH + 1) + i * 9 + tap] + values[i] * gradients[k * 9 + tap],)
            more += (totals[k * (EACH + 1) + EACH] + gradients[k * 9 + 4],)
        totals = more

    BIASES = _first_weight(DEPTH, INPUTS, WIDTH)
    sums += part * (BIASES + WIDTH * DEPTH)
    weights = sums + _first_weight(layer, INPUTS, WIDTH)
    for k in tl.static_range(WIDTH):
        for i in tl.static_range(TOGETHER):
            for tap in tl.static_range(9):
                total = tl.sum(totals[k * (EACH + 1) + i * 9 + tap])
                tl.store(weights + ((k * reads + first + i) * 9 + tap), total, mask=first + i < reads)
        tl.store(sums + (BIASES + WIDTH * layer + k), tl.sum(totals[k * (EACH + 1) + EACH]), mask=first == 0)
