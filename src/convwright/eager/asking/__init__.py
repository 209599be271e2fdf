"""What a caller asks for: the problem of a call, an algorithm around it, autocast.

Input: tensors and arguments. Output: problems, and the requests that apply to them.
Read first: ``describe``, ``ambient``, ``autocast``.
"""
