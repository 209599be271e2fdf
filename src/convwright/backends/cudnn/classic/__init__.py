"""cuDNN's classic API: algorithms with a name and a number."""
