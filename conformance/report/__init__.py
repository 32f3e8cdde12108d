"""Reports: records, the terminal matrix, JSON."""
