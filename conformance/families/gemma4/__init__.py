"""The Gemma 4 family: the dense text decoder."""
