"""Calls as data, and the memory of earlier decisions.

Input: the arguments of a call. Output: a ``Call``, its problems, and the slot of an earlier decision.
Read first: ``call``, ``posed``, ``slots``.
"""
