"""Shared by kernels for problems other than convolutions, whose operands have roles.

Input: such a problem. Output: candidates and plans. Read ``backend`` (offers of one algorithm) and ``plan`` first. The
folders ``elementwise``, ``pool`` and ``resize`` have such kernels.
"""
