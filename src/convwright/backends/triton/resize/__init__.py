"""One kernel for other sizes of images.

Input: a resize problem. Output: candidates, a kernel call, plans. Read ``kernel`` (what a program computes), ``offers``
(what is served, and the tiles) and ``backend`` first.
"""
