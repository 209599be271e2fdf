"""What was found out, kept across processes."""
