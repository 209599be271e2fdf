"""What is public besides the convolutions: finding, posing problems, plans.

Input: whatever poses a problem. Output: findings, reasons, plans.
Read first: ``finding``, ``posing``, ``plans``.
"""
