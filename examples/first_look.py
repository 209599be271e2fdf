"""A first look: find every way of computing one convolution, run the best one, and one by its name.

    python examples/first_look.py

Runs in seconds, on a GPU where there is one and on the CPU otherwise.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

import convwright as cw


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(4, 16, 32, 32, device=device)
    w = torch.randn(32, 16, 3, 3, device=device)
    b = torch.randn(32, device=device)

    found = cw.find(x, w, b, padding=1, activation="relu", mode="quick")
    print(f"{found.problem}\non {found.device.key}: {len(found.verdicts)} candidates, {len(found.refusals)} refusals")
    for verdict in found.verdicts[:8]:
        time = "          " if verdict.call_us is None else f"{verdict.call_us:7.1f} µs"
        print(f"  {time}  {verdict.finding.candidate.id}: {verdict.reason}")

    for _ in range(2):  # the first call is PyTorch's own; when it comes again, the choice is made
        y = cw.conv2d(x, w, b, padding=1, activation="relu")
    choice = cw.last_choice()
    assert choice is not None
    print(f"\nconv2d chose {choice.candidate.id}, which computes in {choice.candidate.arithmetic}")

    exact = torch.relu(F.conv2d(x.double(), w.double(), b.double(), padding=1))
    for name, result in (
        ("conv2d", y),
        ("reference/gemm", cw.conv2d(x, w, b, padding=1, activation="relu", algorithm="reference/gemm")),
        ("PyTorch", torch.relu(F.conv2d(x, w, b, padding=1))),
    ):
        error = (result.double() - exact).norm() / exact.norm()
        print(f"  {name:14} relative L2 error against float64 {error.item():.1e}")

    try:
        cw.conv2d(x, w, b, padding=1, algorithm="cudnn/direct")
    except cw.Refused as refused:
        print(f"\nAsked for by name, an algorithm runs or says why not:\n  {refused}")


if __name__ == "__main__":
    main()
