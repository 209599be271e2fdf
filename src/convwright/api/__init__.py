"""Public functions for problems: find, problem, plan, why, predict, learn, register_kernel.

Input: tensors, a module or a text. Output: findings, reasons, plans.
Read first: ``finding``, ``posing``, ``plans``.
"""
