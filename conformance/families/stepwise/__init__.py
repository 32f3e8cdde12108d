"""What the deviating models of all families share: feeding step by step over a cache, and faults of that."""
