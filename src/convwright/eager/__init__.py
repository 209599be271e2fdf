"""Calls of convolutions: from the arguments of a call to what runs it.

Input: tensors, as ``torch.nn.functional`` takes them. Output: the result of the best candidate, differentiable.
Read first: ``functional`` (the fast path), ``slow_path`` (the first call, top to bottom), ``decision``.
"""
