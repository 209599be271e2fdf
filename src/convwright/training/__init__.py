"""Modules for training: layers with algorithms of your choice, and mixed-scale dense networks.

Input: a model and the algorithms for its layers, or the sizes of a mixed-scale dense network. Output: the same model,
converted in place, which can be reverted; a network that computes in one buffer.
Read first: ``convert``, ``converted``, ``msd_net``.
"""
