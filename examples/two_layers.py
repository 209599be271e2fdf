"""Two convolutions as one chain: what runs, in how much memory, and how near it comes to PyTorch.

    python examples/two_layers.py

On a GPU the two layers are captured into one CUDA graph. The first run tunes; later ones remember.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from convwright.engine.chains.chain import Chain
from convwright.engine.chains.layer import from_sequential


def relative_error(y: Tensor, exact: Tensor) -> float:
    """Relative L2 distance."""
    return float((y.double() - exact).norm() / exact.norm())


def main() -> None:
    device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.ReLU()
    )
    model.to(device, dtype, memory_format=torch.channels_last).requires_grad_(False)
    x = torch.randn(8, 32, 28, 28, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)

    chain = Chain(from_sequential(model), x)
    y = chain(x)

    for choice in chain.choices:
        print(f"{choice.candidate.id:45} {choice.candidate.problem}")
    print(f"arena {chain.arena_bytes:,} bytes, of which the largest workspace takes {chain.workspace_bytes:,}")
    for buffer in chain.buffers:
        at = chain.memory_plan.offsets[buffer.name]
        print(f"  {buffer.name:14} steps {buffer.first} to {buffer.last}, {buffer.nbytes:,} bytes at {at:,}")

    by_pytorch = model(x)
    exact = model.double()(x.double())
    print(
        f"error against float64: chain {relative_error(y, exact):.2e}, PyTorch {relative_error(by_pytorch, exact):.2e}"
    )


if __name__ == "__main__":
    main()
