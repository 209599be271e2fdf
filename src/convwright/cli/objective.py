"""What a search makes least, as commands name it."""

HELP = "What to minimise: time, device-time, energy (mode full), workspace or time-then-workspace."
