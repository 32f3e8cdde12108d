"""Goldens: logits of a fixed set of trials, with a pedigree."""
