"""The reference as a backend."""
