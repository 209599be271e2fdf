"""cuDNN's classic API: the algorithms that have a name and a number."""
