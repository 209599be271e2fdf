"""What kernels share for problems that are no convolutions, whose operands are known by their roles.

Input: such a problem. Output: candidates and plans. Read ``backend`` (what kernels of one algorithm offer) and ``plan``
first. The folders ``elementwise``, ``pool`` and ``resize`` have such kernels.
"""
