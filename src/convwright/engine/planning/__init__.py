"""Choose a candidate and layouts for each step, the order of steps, and the place of each buffer in memory.

Input: a network and a device. Output: an assignment.
Read first: ``planned``, ``ways``, ``assignment``.
"""
