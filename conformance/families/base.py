"""What the harness may know of a model family: the border between generic code and a family's folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from conformance.checkpoints.layout import Layout

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["GLOBAL", "LOCAL", "Family", "FamilyBackend", "Published", "Release", "Spec", "Variant"]

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

    @property
    def probes(self) -> str | None:
        """The kind of the one layer that mixes tokens, or None where several do."""
        return self.layer_kinds[0] if self.num_hidden_layers == 1 else None

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
    """The authority on meaning, and where its code can be had; no files where it has no remote code."""

    name: str
    repository: str
    revision: str
    code_files: tuple[str, ...]


@dataclass(frozen=True)
class FamilyBackend:
    """A backend that exists for one family only.

    A release's own remote code on a pinned Transformers, or without `release_code` the library's own.
    """

    name: str
    title: str
    releases: tuple[str, ...]
    environment: str
    adapter: str
    release_code: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """One way to write a model down: a name for reports, the spec, and how its checkpoint is stored."""

    name: str
    spec: Spec
    layout: Layout


@dataclass(frozen=True)
class Published:
    """Figures that were published for a small model run by a release's own code.

    Attributes:
        spec: the small model.
        width: tokens fed.
        decode_error: largest logit error of one token at a time against the whole sequence.
        split: chunks of the split prefill.
        split_error: largest logit error of the split prefill against the whole sequence.
        training: width → whether training mode differs from evaluation mode there.
        training_difference: the least difference that counts as differing.
        section: where the figures stand.
    """

    spec: Spec
    width: int
    decode_error: float
    split: tuple[int, ...]
    split_error: float
    training: Mapping[int, bool]
    training_difference: float
    section: str


@dataclass(frozen=True, kw_only=True)
class Family:
    """Everything that generic code may ask of a family.

    Attributes:
        name: as on the command line.
        model_types: what config.json may have as `model_type`.
        releases: what the reference implements, in report order.
        spec_from_config: config.json (and where it was read) → spec.
        parameters: spec → parameter name → shape, in checkpoint order.
        weights: (spec, seed, recipe) → parameter name → float32 array holding BF16 values. The recipe
            `telling` makes every rule of the model leave a trace; `fresh` is an untrained model.
        standin: directory of the remote code that checkpoints carry when no released code is named; None
            where engines need none.
        auto_map: release → the `auto_map` of config.json that goes with `standin`.
        specs: (release, limits) → strategy of tiny specs; imports hypothesis when called.
        reference: module of the oracle (`forward`, `Casts`), imported in the reference worker only.
        symmetries: module of the exact relabelling of parameters (`relabel`), imported there too.
        orders: dtype → evaluation orders whose spread is the noise of that dtype.
        published: release → figures published for its own code.
        golden_models: release → the models of the goldens.
        layouts: spec → the ways to write it down that must all load as the same kind of model.
        backends: backends that exist for this family only.
        claims: engine → the releases that it claims to implement with code of its own.
        gguf: module that writes its checkpoints as GGUF (`metadata`, `tensors`), imported in workers only;
            None where there is none.
    """

    name: str
    model_types: tuple[str, ...]
    releases: tuple[Release, ...]
    spec_from_config: Callable[[Mapping[str, Any], str | None], Spec]
    parameters: Callable[[Spec], dict[str, tuple[int, ...]]]
    weights: Callable[[Spec, int, str], dict[str, np.ndarray]]
    standin: Path | None = None
    auto_map: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    specs: Callable[..., SearchStrategy[Any]]
    reference: str
    symmetries: str
    orders: Mapping[str, tuple[str, ...]]
    published: Mapping[str, Published]
    golden_models: Mapping[str, tuple[Variant, ...]]
    layouts: Callable[[Spec], tuple[Variant, ...]]
    backends: tuple[FamilyBackend, ...]
    claims: Mapping[str, tuple[str, ...]]
    gguf: str | None = None
