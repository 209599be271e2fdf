"""What a search makes least, as commands name it."""

HELP = "What is made least: time, device-time, energy (mode full), workspace or time-then-workspace."
