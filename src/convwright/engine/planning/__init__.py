"""What computes each layer, in which layout, in which order, and where everything lies in memory.

Input: a network and a device. Output: an assignment.
Read first: ``planned``, ``ways``, ``assignment``.
"""
