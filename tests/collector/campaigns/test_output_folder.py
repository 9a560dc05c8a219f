"""What an output folder may hold, and what dead runs left in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.collector.campaigns.output_folder import check_output_folder, remove_abandoned
from faultset.collector.episodes.working_folders import WorkingFolder
from faultset.collector.platforms.hosts import open_host
from faultset.core.errors import DataError


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataError, match="is a file"):
        check_output_folder(tmp_path / "data")


def test_what_a_dead_run_left_is_removed_and_a_live_run_is_left_alone(tmp_path: Path) -> None:
    alive = WorkingFolder.claim(tmp_path, "alive", "local")
    dead = WorkingFolder.claim(tmp_path, "dead", "local")
    dead.note.write_text(dead.note.read_text().replace(str(dead.owner), "4194304"))
    for name in ("alive", "dead"):
        (tmp_path / "episodes" / f"{name}.incomplete").mkdir(parents=True)
    assert remove_abandoned(tmp_path, open_host) == ["dead"]
    assert alive.folder.exists()
    assert not dead.folder.exists()
    assert [p.name for p in (tmp_path / "episodes").iterdir()] == ["alive.incomplete"]
    alive.release()
