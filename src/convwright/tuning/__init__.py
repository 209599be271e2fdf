"""Every way of computing a problem, measured and ranked.

Input: a problem, a device and a policy. Output: ``Findings``, or the choice that a call runs.
Read first: ``find``, ``choose``, ``session``.
"""
