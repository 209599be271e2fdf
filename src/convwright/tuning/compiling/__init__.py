"""Kernels compiled before a search and beside calls, in processes of their own."""
