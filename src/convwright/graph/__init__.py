"""Networks as pure data, and what is decided about a whole one. No torch.

Input: nodes and the values that they read and write; buffers with their lives. Output: graphs, offsets in one arena.
Read first: ``graph``, ``joint_choice``, ``memory_plan``.
"""
