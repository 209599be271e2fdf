"""Whole networks. So far: every convolution of a model, and chains of layers in one arena.

Input: a model and an example. Output: its layers and the problems that they pose.
Read first: ``capture/layers``, ``capture/example``, ``chains/chain``.
"""
