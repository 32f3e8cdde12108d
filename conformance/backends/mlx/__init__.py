"""mlx-lm's own models."""
