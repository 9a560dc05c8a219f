"""Datasets that come with the project, by their names: they stay in the folder that faultset was installed from."""

from __future__ import annotations

import json
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from faultset.datasets.format.manifests import VERSIONS


@cache
def shipped_datasets() -> dict[str, Path]:
    """Return the folder of each dataset that comes with the project; none where its source folder is gone."""
    try:
        origin = json.loads(metadata.distribution("faultset").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return {}
    address = urlsplit(origin.get("url", ""))
    if address.scheme != "file":
        return {}
    folder = Path(unquote(address.path)) / "datasets"
    return {one.parent.name: one.parent for one in sorted(folder.glob(f"*/{VERSIONS}"))}


def dataset_folder(location: Path | str) -> Path:
    """Return the folder of a dataset: a path, or the name of one that comes with the project.

    A folder of that name in the current folder goes first.
    """
    path = Path(location)
    if len(path.parts) != 1 or path.exists():
        return path
    return shipped_datasets().get(path.name, path)
