"""Problems, candidates, findings and the rules about them, as pure data. No torch.

Input: text or sizes. Output: frozen dataclasses.
Read first: ``problem``, ``candidate``, ``finding``.
"""
