"""Checkpoint directories: generated, stored, read, and dressed with released code."""
