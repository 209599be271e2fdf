"""Networks as pure data, and the decisions about a whole one. No torch.

Input: nodes, the values that they read and write, buffers with lifetimes. Output: graphs, choices, offsets in an arena.
Read first: ``graph``, ``joint_choice``, ``memory_plan``.
"""
