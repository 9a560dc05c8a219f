"""What an output folder may hold; what killed runs left in it is removed, and only what this program made."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from faultset.collector.campaigns.output_folder import check_output_folder, remove_abandoned
from faultset.collector.cli.recover import recover
from faultset.collector.episodes.working_folders import MARKER, WorkingFolder
from faultset.collector.platforms.hosts import open_host
from faultset.core.errors import DataError, PlatformError

DEAD = {"pid": 4194303, "started": 1}


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for working folders, so that tests leave none in the system's."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset's folder."""
    folder = tmp_path / "data"
    (folder / "episodes").mkdir(parents=True)
    return folder


def claimed(root: Path, episode: str, **owner: Any) -> WorkingFolder:
    """Return a working folder of another owner."""
    made = WorkingFolder.claim(root, episode, "local")
    note = made.note.model_copy(update={"owner": made.note.owner.model_copy(update=owner)})
    made.path.write_text(note.model_dump_json())
    (made.folder / MARKER).write_text(note.model_dump_json())
    return WorkingFolder(path=made.path, note=note)


def change(found: WorkingFolder, **fields: Any) -> None:
    """Change the note, not the marker."""
    found.path.write_text(json.dumps(json.loads(found.path.read_text()) | fields))


def test_what_a_dead_run_left_is_removed_and_a_live_run_is_left_alone(root: Path) -> None:
    alive, dead = WorkingFolder.claim(root, "alive", "local"), claimed(root, "dead", **DEAD)
    for name in ("alive", "dead"):
        (root / "episodes" / f"{name}.incomplete" / "telemetry").mkdir(parents=True)
        (root / "episodes" / f"{name}.incomplete" / "telemetry" / "logs.parquet").write_text("")
    (root / ".running" / ".gone.json.0123abcd.tmp").write_text("{")
    (root / ".README.md.0123abcd.tmp").write_text("half")
    removal = remove_abandoned(root, open_host)
    assert (removal.episodes, removal.remaining) == (["dead"], [])
    assert alive.folder.exists()
    assert not dead.folder.exists()
    assert [path.name for path in (root / "episodes").iterdir()] == ["alive.incomplete"]
    assert [path.name for path in (root / ".running").iterdir()] == ["alive.json"]
    assert not (root / ".README.md.0123abcd.tmp").exists()


def test_a_note_cannot_make_us_remove_a_folder_that_is_not_ours(root: Path, tmp_path: Path) -> None:
    token = "0" * 32
    places = [
        tmp_path / "thesis",  # another name
        tmp_path / "elsewhere" / f"faultset-{token[:16]}",  # another place
        tmp_path / "tmp" / f"faultset-{token[:16]}",  # name and place, but no marker
    ]
    for number, place in enumerate(places):
        place.mkdir(parents=True)
        (place / "precious").write_text("x")
        found = claimed(root, f"e{number}", **DEAD)
        change(found, folder=str(place), token=token)
    real = claimed(root, "marker-of-another", **DEAD)
    other = claimed(root, "victim")
    change(real, folder=str(other.folder), token=other.note.token)
    removal = remove_abandoned(root, open_host)
    assert removal.episodes == []
    assert len(removal.remaining) == 4
    assert all((place / "precious").exists() for place in places)
    assert other.folder.exists()


def test_a_link_to_a_folder_is_not_followed(root: Path, tmp_path: Path) -> None:
    found = claimed(root, "e1", **DEAD)
    precious = tmp_path / "precious"
    shutil.move(found.folder, precious)
    found.folder.symlink_to(precious)
    removal = remove_abandoned(root, open_host)
    assert "is not a folder" in removal.remaining[0]
    assert (precious / MARKER).exists()


NO_NOTE = "a.json is not a note of a working folder; not removed"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"[]", NO_NOTE),
        (b"{}", NO_NOTE),
        (b'{"folder":"/any/dir","owner":4194303,"owner_started":1.0,"platform":"local"}', NO_NOTE),
        (b'{"folder":7}', NO_NOTE),
        (b"\xff\xfe", NO_NOTE),
        (b"[" * 100_000, "a.json must have at most 8,192 bytes, but has 100,000; restore the file; not removed"),
        (b"", NO_NOTE),
    ],
)
def test_a_note_that_is_none_is_named_and_left(content: bytes, sentence: str, root: Path) -> None:
    (root / ".running").mkdir()
    (root / ".running" / "a.json").write_bytes(content)
    done = CliRunner().invoke(recover, ["--out", str(root)])
    assert done.exit_code == 3, done.output
    assert sentence in done.output
    assert (root / ".running" / "a.json").read_bytes() == content


def test_a_run_of_another_machine_is_only_recovered_on_demand(root: Path) -> None:
    found = claimed(root, "e1", host="elsewhere", **DEAD)
    done = CliRunner().invoke(recover, ["--out", str(root)])
    assert done.exit_code == 3
    assert "another machine or container" in done.output
    assert found.folder.exists()
    done = CliRunner().invoke(recover, ["--out", str(root), "--break-lock"])
    assert done.exit_code == 0, done.output
    assert "removed the remains of 1 episode" in done.output
    assert not found.folder.exists()


def test_a_folder_that_only_looks_like_an_unfinished_episode_stays(root: Path, tmp_path: Path) -> None:
    thesis = root / "episodes" / "thesis.incomplete"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("precious")
    (tmp_path / "other").mkdir()
    (root / "episodes" / "link.incomplete").symlink_to(tmp_path / "other")
    removal = remove_abandoned(root, open_host)
    assert len(removal.remaining) == 2
    assert (thesis / "chapter.tex").exists()


def test_a_link_in_place_of_a_folder_of_the_dataset_is_refused(tmp_path: Path) -> None:
    for name in ("episodes", ".running", ".failed"):
        root = tmp_path / name.strip(".")
        (root / "campaigns").mkdir(parents=True)
        (root / name).symlink_to(tmp_path)
        with pytest.raises(DataError, match="must be a folder, but is a link"):
            check_output_folder(root)


def test_a_folder_with_nothing_but_a_readme_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("a project")
    with pytest.raises(DataError, match="must be a dataset or an empty folder"):
        check_output_folder(tmp_path)


def test_what_cannot_be_undone_keeps_its_journal_until_it_is(root: Path) -> None:
    found = claimed(root, "e1", **DEAD)

    class Host:
        def undo_abandoned(self, journal: Path) -> None:
            raise PlatformError("the cluster does not answer")

    with pytest.raises(PlatformError, match="does not answer"):
        remove_abandoned(root, lambda platform: Host())  # type: ignore[arg-type]
    assert found.folder.exists()
    with pytest.raises(PlatformError, match="an earlier run of episode e1 are not undone"):
        WorkingFolder.claim(root, "e1", "local")
    assert remove_abandoned(root, open_host).episodes == ["e1"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataError, match="is a file"):
        check_output_folder(tmp_path / "data")


def test_a_failed_undo_keeps_the_working_folder_for_recover(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from faultset.collector.episodes import process
    from faultset.collector.episodes.messages import EpisodeOutcome
    from faultset.collector.platforms.journal import Journal

    class Host:
        answers = False

        def undo_abandoned(self, journal: Path) -> None:
            if not self.answers:
                raise PlatformError("the cluster does not answer")

    monkeypatch.setattr(process, "open_host", lambda platform, settings: Host())
    assignment: Any = SimpleNamespace(root=root, plan=SimpleNamespace(platform="kubernetes"), settings={})
    working = WorkingFolder.claim(root, "e1", "kubernetes")
    journal = Journal(working.journal)
    with journal.operation("patch", {}, [{"verb": "patch", "kind": "Service", "name": "geo", "change": {}}]):
        pass
    journal.close()
    outcome = EpisodeOutcome(episode="e1", failure="1 changes could not be undone", exit_code=4)
    ended = process._release(assignment, working, journal, outcome)
    assert not ended.retriable
    assert "run 'faultset recover --out" in ended.failure
    assert working.journal.exists()
    said = replace(outcome, failure="2 changes are left; run 'faultset recover'", needs_recovery=True)
    assert process._release(assignment, working, journal, said).failure == said.failure
    Host.answers = True
    process._release(assignment, working, journal, outcome)
    assert not working.folder.exists()
