"""Public functions other than convolutions: find, problem, plan, predict.

Input: tensors, a module or a text. Output: findings, reasons, plans.
Read first: ``finding``, ``posing``, ``plans``.
"""
