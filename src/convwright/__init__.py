"""convwright."""
