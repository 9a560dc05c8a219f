"""Random changes of every file of a dataset: what reads them works, or says in one sentence what is wrong."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.datasets import open_dataset
from faultset.datasets.cache import read_checked_files
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.format.version_files import VersionFile
from faultset.datasets.testing import mutate, mutation_seeds
from faultset.datasets.validation import check_content, episode_files

LONGEST_S = 20.0
JOURNAL = b'{"seq": 1, "state": "note", "args": {"name": "deploy"}, "visible": []}\n' * 3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mutated")
    write_example_dataset(root, episodes=2, baseline_s=10, fault_s=10)
    return root


def refusal(read: Callable[[], object]) -> str | None:
    """Return why something cannot be read; None when it can."""
    try:
        read()
    except DataError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", episode_files(TABLES))
def test_a_changed_file_of_an_episode_is_read_or_refused(name: str, root: Path, tmp_path: Path) -> None:
    original = open_dataset(root).path(open_dataset(root).episodes[1])
    episode = Path(shutil.copytree(original, tmp_path / original.name))
    whole = (episode / name).read_bytes() or JOURNAL
    refused = 0
    for seed in mutation_seeds():
        (episode / name).write_bytes(mutate(whole, random.Random(f"{name}/{seed}")))
        started = time.monotonic()
        said = refusal(lambda: check_content(episode, episode.name, [name]))
        refused += said is not None
        assert said is None or said.isprintable(), f"seed {seed}: {said!r}"
        assert time.monotonic() - started < LONGEST_S, f"seed {seed}"
    assert refused


def test_a_changed_version_file_is_read_or_refused(root: Path) -> None:
    whole = (root / "versions" / "1.0.0.json").read_bytes()
    refused = 0
    for seed in mutation_seeds():
        content = mutate(whole, random.Random(seed))
        said = refusal(lambda content=content: VersionFile.from_json(content, origin="1.0.0.json"))
        refused += said is not None
        assert said is None or said.isprintable(), f"seed {seed}: {said!r}"
    assert refused


def test_a_changed_cache_is_read_or_ignored(root: Path) -> None:
    open_dataset(root).check_files(1)
    file = root / ".cache" / "content.json"
    whole = file.read_bytes()
    for seed in mutation_seeds():
        file.write_bytes(mutate(whole, random.Random(seed)))
        read_checked_files(root)
