"""Predict a candidate's time, power and memory on a device before anything runs.

Input: candidates, device facts, and the findings of a store. Output: predictions (``core/predictor``).
Read first: ``physics`` (what a device needs at least), ``estimates`` (what backends expect), ``corrections``.
"""
