"""Data and float64 references for checking the results of every kind of problem.

Input: a problem and a kind of data. Output: operands, references, and the errors of results.
Read first: ``kind``, ``reference``, ``error``.
"""
