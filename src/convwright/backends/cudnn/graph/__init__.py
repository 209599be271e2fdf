"""cuDNN's graph API: engines with an id and knobs, for any device."""
