"""Modules to build models of, as ``torch.nn`` has them."""

from convwright.training.msd_net import MSDNet

__all__ = ["MSDNet"]
