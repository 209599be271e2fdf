"""Changes of a graph that always pay, such as batch norms folded into weights.

Input: a network. Output: a network that computes the same, and a sentence for each change.
Read first: ``listed``, ``change``, ``fold_scale``.
"""
