"""Graph changes that always pay, such as folding batch norms into weights.

Input: a network. Output: an equivalent network, and a sentence for each change.
Read first: ``listed``, ``change``, ``fold_scale``.
"""
