"""Convolutions in int8, and their loss of accuracy.

Input: a model and samples. Output: a quantized model and the errors of its results.
Read first: ``quantize``, ``int8_layer``, ``int8_calls``.
"""
