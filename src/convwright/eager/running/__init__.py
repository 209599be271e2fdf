"""Plans bound to calls: workspace, packed weights, alignment, fallbacks.

Input: a choice and a call. Output: a function that runs calls like it.
Read first: ``bound``, ``runner``, ``pytorchs_own``.
"""
