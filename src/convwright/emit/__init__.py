"""cuDNN's convolutions as C programs.

Input: a problem and a candidate. Output: a folder of C files.
Read first: ``chosen``, ``literals``, ``any_sizes``.
"""
