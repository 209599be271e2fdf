"""A small network as an engine: what runs, in how much memory, and how near it comes to PyTorch.

    python examples/whole_network.py

On a GPU the engine is one CUDA graph. The first run searches; later ones remember.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import convwright as cw


def relative_error(y: Tensor, exact: Tensor) -> float:
    """Relative L2 distance."""
    return float((y.double() - exact).norm() / exact.norm())


@torch.no_grad()
def main() -> None:
    device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, stride=2, padding=1)
    )
    model.eval().to(device, dtype, memory_format=torch.channels_last)
    x = torch.randn(8, 32, 28, 28, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)

    engine = cw.optimize(model, x)
    y = engine(x)

    print(engine.explain())
    by_pytorch = model(x)
    exact = model.double()(x.double())
    print(
        f"error against float64: engine {relative_error(y, exact):.2e}, PyTorch {relative_error(by_pytorch, exact):.2e}"
    )


if __name__ == "__main__":
    main()
