"""Findings, advice and benchmarks as tables, plots and prose.

Input: results as data. Output: text for people.
Read first: ``tables/findings``, ``winner``, ``explain``.
"""
