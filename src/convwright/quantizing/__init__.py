"""Convolutions in int8, and what they cost in accuracy.

Input: a model and samples. Output: a quantized model and how far its results are off.
Read first: ``quantize``, ``int8_layer``, ``int8_calls``.
"""
