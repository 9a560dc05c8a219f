"""Writing the episodes of a dataset as tasks of another framework."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path

from faultset.core.errors import UsageError
from faultset.core.files import translate_write_errors
from faultset.core.locks.new_folder import new_folder
from faultset.datasets import open_dataset
from faultset.evaluators.agent_tasks.episodes import ChosenTasks, tasks_of
from faultset.evaluators.agent_tasks.harbor import write_harbor_tasks
from faultset.evaluators.agent_tasks.inspect_task import write_inspect_task


def export_tasks(
    dataset: Path,
    out: Path,
    layout: str,
    *,
    task: str = "all",
    episodes: Sequence[str] = (),
    version: str | None = None,
    install: str | None = None,
) -> ChosenTasks:
    """Write tasks into a new folder and return them.

    Parameters
    ----------
    layout
        inspect or harbor.
    task
        What is asked: detection, localization, diagnosis or all.
    episodes
        Only these; all by default.
    install
        What pip installs in Harbor's containers; this version of faultset by default.

    Raises
    ------
    UsageError
        The task, an episode or the version is unknown, the wheel is not there, or the folder exists.
    DataError
        The dataset cannot be read, or no episode can be a task.
    """
    if install is not None and (not install.isprintable() or set(install) & set("\"\\$`'")):
        raise UsageError("what pip is to install must be one requirement without quotes, or the path of a wheel")
    if install is not None and install.endswith(".whl") and not Path(install).is_file():
        raise UsageError("there is no such wheel to install; build one, or name a requirement")
    opened = open_dataset(dataset, version)
    chosen = tasks_of(opened, task, episodes)
    with translate_write_errors(out), new_folder(out, "export of tasks") as folder:
        if layout == "inspect":
            write_inspect_task(folder, dataset, opened.version, chosen.tasks)
        else:
            needed = install or f"faultset[mcp,sql]=={installed_version('faultset')}"
            write_harbor_tasks(folder, opened, chosen.tasks, needed)
    return chosen
