"""Networks in other types than their model's, and the accuracy that their outputs must reach.

Input: a network and a precision. Output: a network with casts, or why an engine is not as exact as was asked.
Read first: ``asked``, ``lowering``, ``standard``.
"""
