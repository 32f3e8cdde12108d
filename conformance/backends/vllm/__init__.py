"""vLLM's own model code, as a backend."""
