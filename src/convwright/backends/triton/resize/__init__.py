"""One kernel for resizing.

Input: a resize problem. Output: candidates, a kernel call, plans. Read ``kernel`` (one program), ``offers`` (supported
problems, tiles) and ``backend`` first.
"""
