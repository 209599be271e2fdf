"""Eager convolution calls: from the arguments of a call to the candidate that runs.

Input: tensors, as for ``torch.nn.functional``. Output: the result of the best candidate, differentiable.
Read first: ``functional`` (the fast path), ``slow_path`` (the first call, top to bottom), ``decision``.
"""
