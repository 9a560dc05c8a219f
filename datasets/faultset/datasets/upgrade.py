"""Writing a dataset of an older release anew, in the form in which this release writes."""

from __future__ import annotations

from pathlib import Path

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.files import translate_write_errors
from faultset.core.locks.new_folder import new_folder
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version
from faultset.datasets.rewriting import write_again


def upgrade_dataset(
    root: Path | str, out: Path | str, *, version: str | None = None, progress: Progress | None = None
) -> Dataset:
    """Write a version of a dataset anew in a new folder, and open it.

    Ids, telemetry, truth, splits and provenance stay as they are. What older releases left out of their files is filled
    in, rows are sorted, and the provenance says of which version the new one was made.

    Parameters
    ----------
    root
        Dataset folder; it is only read.
    out
        Folder to make; it must not exist, or be empty.
    version
        The newest by default.
    progress
        Told how many episodes are finished, and of how many.

    Raises
    ------
    DataError
        The dataset is damaged, or `out` holds something.
    """
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "upgrade") as folder:
        steps = StepCounter(len(dataset.episodes), progress)
        for episode in dataset.episodes:
            write_again(dataset[episode], folder)
            steps.add()
        provenance = dict(dataset.provenance)
        provenance["upgraded_from"] = {
            "version": dataset.version,
            "created": dataset.created,
            "schema_version": dataset.manifest.schema_version,
            "provenance": provenance.get("upgraded_from"),
        }
        create_version(folder, provenance=provenance, splits=dataset.manifest.splits)
    return open_dataset(out)
