"""Gradients of convolutions by chosen candidates.

Input: the three directions of a convolution, ready to run. Output: an autograd node.
Read first: ``autograd``, ``fused_gradients``, ``regions``.
"""
