"""Kinds of problems: what a problem is, and the kinds beside convolutions.

Input: a text such as ``pointwise "relu(a + b)" mb32ic64ih56``, or shapes. Output: a ``Problem``, frozen and hashable.
Read ``problem`` (the protocol), ``text`` (any text → its problem) and ``pointwise`` (one kind) first.
"""
