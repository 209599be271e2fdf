"""Measure many candidates of many problems, so that predictions can be learned from them.

Input: a device, a duration, the shares of the sources of problems. Output: observations in a store.
Read first: ``sample``, ``lane``, ``attempt``.
"""
