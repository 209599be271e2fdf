"""Networks as pure data, and the plan of a whole network. No torch.

Input: nodes, the values that they read and write, buffers with lifetimes. Output: graphs, choices, offsets in an arena.
Read first: ``graph``, ``joint_choice``, ``memory_plan``.
"""
