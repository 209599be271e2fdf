"""Engines for several sizes of the input, which share weights and one arena.

Input: a model, an example and buckets. Output: an engine that pads and splits batches.
Read first: ``bucketed``, ``buckets``, ``batches``.
"""
