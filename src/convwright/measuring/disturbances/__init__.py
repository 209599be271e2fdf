"""Detect what disturbs a measurement: other work on the host, a slowed-down device, noise.

Input: the state of the system and the rounds of a run. Output: rounds that count, and reasons with remedies.
Read first: ``throttle``, ``background``, ``stability``.
"""
