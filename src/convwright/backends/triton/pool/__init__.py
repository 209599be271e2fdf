"""One generated kernel for each pooling problem.

Input: a pooling problem. Output: candidates, kernels as text. Read ``walk`` (the order of the output and the windows),
``source`` (the Triton source) and ``offers`` first.
"""
