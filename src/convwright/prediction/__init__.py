"""What a candidate should take on a device, known before anything runs.

In: candidates, device facts, and the findings of a store. Out: predictions (``core/predictor``).
Read first: ``physics`` (what a device needs at least), ``estimates`` (what backends expect), ``corrections``.
Where candidates can run, a prediction decides what is tried and when, never what is chosen.
"""
