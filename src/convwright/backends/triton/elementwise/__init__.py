"""One generated kernel for each expression or copy.

Input: a pointwise or copy problem. Output: candidates, kernels as text, plans. Read ``walk`` (the order of operands),
``source`` (expression → Triton source) and ``backend`` first.
"""
