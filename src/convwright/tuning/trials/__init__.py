"""Candidates run on real operands: looked at, checked, timed."""
