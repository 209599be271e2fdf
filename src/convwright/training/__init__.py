"""Layers whose algorithms are chosen by hand.

Input: a model and the algorithms for its layers. Output: the same model, converted in place, and the way back.
Read first: ``convert``, ``converted``, ``paths``.
"""
