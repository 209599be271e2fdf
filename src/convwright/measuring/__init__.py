"""Times, errors, energy and memory of calls, with the conditions under which they were taken.

Input: calls. Output: ``Timing`` and errors, with intervals.
Read first: ``timer``, ``regression``, ``checking/reference``.
"""
