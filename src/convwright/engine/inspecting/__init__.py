"""Reports about an engine: its steps, their times and their errors.

Input: an assignment or a program. Output: a table, a trace, a comparison with float64.
Read first: ``explained``, ``profile``, ``comparison``.
"""
