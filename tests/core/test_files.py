from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.core.files import replace_text, replacing, translate_resource_errors


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_replaced_file_has_the_new_text_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "notes.json"
    path.write_text("old")
    replace_text(path, "naïve")
    assert path.read_text(encoding="utf-8") == "naïve"
    assert names(tmp_path) == ["notes.json"]


def test_an_error_leaves_the_old_file_as_it_was(tmp_path):
    path = tmp_path / "notes.json"
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as temporary, temporary.open("w") as file:
        file.write(b"half")  # pyright: ignore[reportArgumentType]
    assert path.read_text() == "old"
    assert names(tmp_path) == ["notes.json"]


def test_readers_see_the_old_file_until_the_block_ends(tmp_path):
    path = tmp_path / "notes.json"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_without_overwrite_a_file_that_appears_meanwhile_stays(tmp_path):
    path = tmp_path / "1.0.0.json"
    writing = replacing(path, overwrite=False)
    writing.__enter__().write_text("mine")
    path.write_text("theirs")
    with pytest.raises(FileExistsError):
        writing.__exit__(None, None, None)
    assert path.read_text() == "theirs"
    assert names(tmp_path) == ["1.0.0.json"]


@pytest.mark.parametrize(("durable", "calls"), [(True, 2), (False, 0)])
def test_durable_files_and_their_folder_are_flushed(tmp_path, monkeypatch, durable, calls):
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    replace_text(tmp_path / "file", "text", durable=durable)
    assert len(flushed) == calls


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.EIO])
def test_what_the_machine_does_not_give_is_one_sentence_with_a_remedy(number: int, tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"cannot be written \(.*\); .*the same command again"),
        translate_resource_errors(tmp_path),
    ):
        raise OSError(number, os.strerror(number))


def test_a_bug_stays_a_bug(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), translate_resource_errors(tmp_path):
        (tmp_path / "absent").read_text()


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("kind", ["folder", "pipe", "socket"])
def test_what_is_no_file_is_never_replaced(kind: str, overwrite: bool, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with socket.socket(socket.AF_UNIX) as listening:
        makers = {"folder": place.mkdir, "pipe": lambda: os.mkfifo(place), "socket": lambda: listening.bind(str(place))}
        makers[kind]()
        before = place.lstat()
        with pytest.raises(FileExistsError, match="not a regular file"), replacing(place, overwrite=overwrite):
            pytest.fail("nothing may be written")
    assert place.lstat().st_mode == before.st_mode
    assert names(tmp_path) == ["place"]
