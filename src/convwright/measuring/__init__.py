"""Measure times, errors, energy and memory of calls, and record the conditions.

Input: calls. Output: ``Timing`` and errors, with intervals.
Read first: ``timer``, ``regression``, ``checking/reference``.
"""
