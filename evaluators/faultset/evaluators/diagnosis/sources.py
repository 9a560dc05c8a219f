"""Open the episode that an incident is read from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faultset.core.errors import UsageError
from faultset.datasets.dataset import Dataset, Episode, open_dataset
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import TELEMETRY
from faultset.datasets.remote.file_systems import copy_files, is_url, local_path, opened_labels

_SHOWN = 3


@contextmanager
def opened_episode(source: str, episode_id: str | None = None, version: str | None = None) -> Iterator[Episode]:
    """Yield an episode of a dataset, or the one in a folder.

    Parameters
    ----------
    source
        Folder, name or URL of a dataset, or the folder of one episode. From a URL, context and telemetry of the episode
        are copied.
    episode_id
        Required if the dataset has several episodes.
    version
        Version of the dataset; the newest by default.

    Raises
    ------
    UsageError
        It is unclear which episode is meant.
    DataError
        Dataset or episode do not exist or are damaged.
    PlatformError
        The URL cannot be read.
    """
    if is_url(source):
        with opened_labels(source, version) as dataset:
            episode = _choose(dataset, episode_id, source)
            names = [name for name in episode.files if name.startswith(f"{TELEMETRY}/")]
            copy_files(source.rstrip("/"), dataset, [episode.id], names, dataset.root)
            yield episode
        return
    folder = local_path(source)
    if (folder / CONTEXT_FILE).is_file():
        if episode_id is not None or version is not None:
            raise UsageError(f"{source} is the folder of one episode; leave out --episode and --version")
        yield _single(folder)
        return
    dataset = open_dataset(folder, version)
    episode = _choose(dataset, episode_id, source)
    dataset.check_files(episodes=[episode.id])
    yield episode


def _single(folder: Path) -> Episode:
    return Episode(id=folder.resolve().name, path=folder)


def _choose(dataset: Dataset, episode_id: str | None, source: str) -> Episode:
    if episode_id is not None:
        return dataset[episode_id]
    if len(dataset) == 1:
        return dataset[dataset.episodes[0]]
    raise UsageError(
        f"{source} has {len(dataset)} episodes ({', '.join(dataset.episodes[:_SHOWN])}, ...); choose one with "
        f'--episode, "faultset dataset episodes {source}" lists them'
    )
