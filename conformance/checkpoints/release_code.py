"""Released remote code: named by the user, hashed, laid beside generated weights; never run here.

Only a worker runs it, from a checkpoint directory that carries it. Without a name from the user,
checkpoints carry our stand-ins, and reports say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.checkpoints.store import Checkpoint
from conformance.errors import BadInput
from conformance.families.base import Release

__all__ = ["ReleasedCode", "code_in", "dress", "parse_sources", "resolve"]

ENVIRONMENT_PREFIX = "CONFORMANCE_RELEASE_CODE_"
HUB = "hub"
_FETCH = """
import sys
from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
wanted = {"revision": sys.argv[2], "allow_patterns": ["*.py", "config.json"]}
try:
    path = snapshot_download(sys.argv[1], **wanted)
except Exception as error:  # no network, or no leave; a pinned revision in the cache is as good
    try:
        path = snapshot_download(sys.argv[1], **wanted, local_files_only=True)
    except LocalEntryNotFoundError:
        raise error from None
print(path)
"""


@dataclass(frozen=True)
class ReleasedCode:
    """A release's own remote code.

    Attributes:
        path: snapshot directory; None for no code at all.
        sha256: hash over names and contents of its Python files, in name order.
        auto_map: what its config.json says of it.
    """

    path: Path | None
    sha256: str
    auto_map: Mapping[str, str]

    @property
    def files(self) -> list[Path]:
        """Its Python files, in name order."""
        return [] if self.path is None else sorted(self.path.glob("*.py"))


def parse_sources(
    named: Iterable[str], environment: Mapping[str, str], releases: Iterable[str]
) -> dict[str, str]:
    """Release → where its code is, from `R=WHERE` options, then from environment variables.

    Raises:
        BadInput: an option is not of that form, or there is no such release.
    """
    known = list(releases)
    sources = {
        release: environment[ENVIRONMENT_PREFIX + release.upper()]
        for release in known
        if environment.get(ENVIRONMENT_PREFIX + release.upper())
    }
    for text in named:
        release, equals, where = text.partition("=")
        if not equals or not where:
            raise BadInput.value("--release-code", text, "RELEASE=DIRECTORY or RELEASE=hub")
        if release not in known:
            raise BadInput.value("release", release, f"one of {', '.join(known)}", f"--release-code {text}")
        sources[release] = where
    return sources


def resolve(source: str, release: Release, python: str) -> ReleasedCode:
    """Find released code and hash it.

    Args:
        source: a snapshot directory; `hub` for the pinned revision, which the backend's environment
            downloads or finds in its cache.
        release: whose code it is.
        python: interpreter of the backend's environment, which has the hub's client.

    Raises:
        BadInput: there is no such directory, or it holds no remote code.
    """
    path = _from_hub(release, python) if source == HUB else Path(source).resolve()
    if not path.is_dir():
        raise BadInput.value("release code", source, f"a snapshot directory of {release.repository}, or hub")
    files = sorted(path.glob("*.py"))
    if not files:
        raise BadInput(f"no Python file, but released code of {release.name} needs one [{path}]")
    try:
        auto_map = json.loads((path / "config.json").read_text())["auto_map"]
    except OSError:
        raise BadInput(
            f"config.json is missing, but names the classes of the released code [{path}]"
        ) from None
    except (ValueError, KeyError, TypeError):
        auto_map = None
    if not isinstance(auto_map, dict):
        raise BadInput(f"config.json has no auto_map, but it names the released classes [{path}]")
    return code_in(path, auto_map)


def code_in(path: Path | None, auto_map: Mapping[str, str]) -> ReleasedCode:
    """The Python files of a directory, hashed, with the classes that `auto_map` names in them."""
    digest = hashlib.sha256()
    for file in ReleasedCode(path, "", auto_map).files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return ReleasedCode(path, digest.hexdigest(), auto_map)


def dress(checkpoint: Checkpoint, code: ReleasedCode, root: Path) -> Checkpoint:
    """The same checkpoint with this code in the place of its own; made once, named by both."""
    identity = hashlib.sha256(f"{checkpoint.identity} {code.sha256}".encode()).hexdigest()[:16]
    path = root / identity
    if not path.exists():
        root.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=root))
        try:
            config = json.loads((checkpoint.path / "config.json").read_text())
            config.pop("auto_map", None)
            if code.auto_map:
                config["auto_map"] = dict(code.auto_map)
            (draft / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
            for file in code.files:
                shutil.copyfile(file, draft / file.name)
            for file in checkpoint.path.glob("*.safetensors*"):
                _share(file, draft / file.name)
            os.rename(draft, path)
        except OSError:
            if not path.exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return replace(checkpoint, path=path, identity=identity)


def _share(file: Path, name: Path) -> None:
    """Give a file another name; real weights are too large to copy."""
    # The file itself: a hub snapshot holds relative links, which lead nowhere from another directory.
    content = file.resolve()
    try:
        os.link(content, name)
    except OSError:  # on another file system
        os.symlink(content, name)


def _from_hub(release: Release, python: str) -> Path:
    command = [python, "-c", _FETCH, release.repository, release.revision]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BadInput(f"{release.repository} at {release.revision} could not be had from the hub: {reason}")
    return Path(done.stdout.strip())
