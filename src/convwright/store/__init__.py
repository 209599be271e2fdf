"""Findings kept across processes, in one SQLite file. No torch.

Input: findings by problem, device and candidate. Output: the same, read later or in another process.
Read first: ``store``, ``schema``, ``transfer``.
"""
