"""Folders for the volumes of databases, below one folder of the node."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.protocol import VOLUME_ROOT

ROOT = Path(VOLUME_ROOT)


def remove(paths: Sequence[str], *, root: Path = ROOT) -> None:
    """Remove folders with all that is in them; those that are gone already are passed over."""
    for path in _checked(paths, root):
        if path.exists():
            shutil.rmtree(path)


def _checked(paths: Sequence[str], root: Path) -> list[Path]:
    """Return the paths; raise AgentError when one is not truly below the root, before any is touched."""
    checked = []
    if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
        raise AgentError("paths are a list of texts")
    for name in paths:
        path = Path(name)
        parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
        if not parts or ".." in parts or path.resolve() != root.resolve() / Path(*parts):
            raise AgentError(f"volumes lie below {root}; {name} does not")
        checked.append(path)
    return checked
