"""What one trains with: layers whose algorithms are chosen by hand, and networks of their own.

Input: a model and the algorithms for its layers, or the sizes of a mixed-scale dense network. Output: the same model,
converted in place, and the way back; a network that computes in one buffer.
Read first: ``convert``, ``converted``, ``msd_net``.
"""
