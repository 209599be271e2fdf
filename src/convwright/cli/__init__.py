"""The command line, one module for each command.

Input: words. Output: what ``report`` prints, or JSON.
Read first: ``main``, ``find``, ``targets``.
"""
