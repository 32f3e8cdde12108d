"""What the harness may know of a model family: the border between generic code and a family's folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["GLOBAL", "LOCAL", "Family", "FamilyBackend", "Release", "Spec"]

LOCAL = "local"
GLOBAL = "global"


class Spec(ABC):
    """A frozen model configuration, readable from and writable as config.json.

    Subclasses are frozen dataclasses whose fields are the keys of config.json.
    """

    family: ClassVar[str]
    vocab_size: int
    window_size: int
    num_hidden_layers: int

    @property
    @abstractmethod
    def release(self) -> str:
        """The release whose meaning this configuration has."""

    @property
    @abstractmethod
    def window_span(self) -> int:
        """Tokens that a query of a local layer attends, itself included."""

    @property
    @abstractmethod
    def layer_kinds(self) -> tuple[str, ...]:
        """`local` or `global` for every layer."""

    @abstractmethod
    def describe(self) -> str:
        """The spec in a few words, for reports."""

    @abstractmethod
    def to_config(self, *, omit_defaults: bool = False) -> dict[str, Any]:
        """The architecture keys of config.json."""

    def to_dict(self) -> dict[str, Any]:
        """The spec's fields, for bundles and manifests."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Release:
    """The authority on meaning, and where its code can be had."""

    name: str
    repository: str
    revision: str
    code_files: tuple[str, ...]


@dataclass(frozen=True)
class FamilyBackend:
    """A backend that exists for one family only: a release's own code on a pinned Transformers."""

    name: str
    title: str
    releases: tuple[str, ...]
    environment: str
    adapter: str
    release_code: str


@dataclass(frozen=True)
class Family:
    """Everything that generic code may ask of a family.

    Attributes:
        name: `model_type` of config.json.
        releases: what the reference implements, in report order.
        spec_from_config: config.json (and where it was read) → spec.
        parameters: spec → parameter name → shape, in checkpoint order.
        weights: (spec, seed) → parameter name → float32 array holding BF16 values.
        standin: directory of the remote code that checkpoints carry when no released code is named.
        auto_map: release → the `auto_map` of config.json that goes with `standin`.
        specs: (release, limits) → strategy of tiny specs; imports hypothesis when called.
        reference: dotted path `module:function` of the oracle, imported in the reference worker only.
        symmetries: dotted path `module:function` of the exact relabelling of parameters.
        backends: backends that exist for this family only.
    """

    name: str
    releases: tuple[Release, ...]
    spec_from_config: Callable[[Mapping[str, Any], str | None], Spec]
    parameters: Callable[[Spec], dict[str, tuple[int, ...]]]
    weights: Callable[[Spec, int], dict[str, np.ndarray]]
    standin: Path
    auto_map: Mapping[str, Mapping[str, str]]
    specs: Callable[..., SearchStrategy[Any]]
    reference: str
    symmetries: str
    backends: tuple[FamilyBackend, ...]
