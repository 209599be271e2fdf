"""Facts about this machine's CPU and GPUs, from the system and the driver.

Input: a device's name. Output: ``DeviceFacts``, and a GPU's present state.
Read first: ``machine``, ``nvml``.
"""
