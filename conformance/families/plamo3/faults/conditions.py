"""What a PLaMo 3 model must have for a fault to show, beyond what any model can have."""

from __future__ import annotations

from conformance.families.stepwise.conditions import of_spec

__all__ = ["TIED", "UNTIED", "YARN"]

YARN = of_spec("2604", "release 2604", lambda spec: spec.release == "2604")
TIED = of_spec("tied", "a tied head", lambda spec: spec.tie_word_embeddings)
UNTIED = of_spec("untied", "an untied head", lambda spec: not spec.tie_word_embeddings)
