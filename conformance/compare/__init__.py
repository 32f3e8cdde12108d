"""Comparing: pure functions of logits. Nothing here runs a model."""
