"""Keep findings across processes, in an SQLite file or a PostgreSQL database. No torch.

Input: findings by problem, device and candidate. Output: the same, read later or in another process.
Read first: ``store``, ``schema``, ``transfer``.
"""
