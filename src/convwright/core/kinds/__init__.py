"""Kinds of problems: the protocol, and all kinds except convolutions.

Input: a text such as ``pointwise "relu(a + b)" mb32ic64ih56``, or shapes. Output: a ``Problem``, frozen and hashable.
Read first: ``problem`` (the protocol), ``text`` (any text → its problem), ``pointwise`` (one kind).
"""
