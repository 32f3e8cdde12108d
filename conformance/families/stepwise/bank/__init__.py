"""Faults that every family has, in tables; a family cites its own document for them."""
