"""Remote code on Transformers, as a backend."""
