"""cuDNN's graph API: engines with an id and knobs, for a device that is here or elsewhere."""
