"""A network in other types than its model's, and what its outputs are held against.

Input: a network and a precision. Output: a network with casts, or why an engine is not as exact as was asked.
Read first: ``asked``, ``lowering``, ``standard``.
"""
