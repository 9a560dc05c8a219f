"""Imports of hostile data: one bad case harms no other, archives have limits, nothing of the user is lost."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faultset.core.console import root as faultset
from faultset.datasets import open_dataset
from faultset.datasets.imports.importer import import_dataset

START, ROWS = 1_690_000_000, 40
COMPRESSED = {".tar": bytes, ".tar.gz": gzip.compress, ".tar.bz2": bz2.compress, ".tar.xz": lzma.compress}


def write_case(folder: Path, header: str = "time,s_cpu") -> None:
    folder.mkdir(parents=True)
    rows = [f"{START + row},{row % 7}" for row in range(ROWS)]
    (folder / "simple_metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    (folder / "inject_time.txt").write_text(str(START + ROWS // 2))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in range(3):
        write_case(tmp_path / "source" / "RE2-OB" / "s_cpu" / str(number))
    return tmp_path / "source"


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(faultset, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(*arguments: object) -> str:
    result = run(*arguments)
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert result.exit_code in (2, 3), result.output
    assert len(errors) == 1
    return errors[0]


@pytest.fixture
def lethal_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format whose second case kills the process that reads it, announced as every format is."""
    package = tmp_path / "lethal"
    package.mkdir()
    (package / "lethal_format.py").write_text(LETHAL)
    info = package / "lethal-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lethal\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[faultset.importers]\nlethal = lethal_format:Lethal\n")
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setenv("PYTHONPATH", f"{package}:{os.environ.get('PYTHONPATH', '')}")


LETHAL = """
import os
from faultset.datasets.imports.formats.rcaeval import RCAEvalImport

class Lethal(RCAEvalImport):
    name = "lethal"

    def recognises(self, path):
        return False

    def load(self, case):
        if case.key.endswith("/1"):
            os.kill(os.getpid(), 9)
        return super().load(case)
"""


@pytest.mark.usefixtures("lethal_format")
def test_a_killed_process_costs_its_own_case_only(source: Path, tmp_path: Path) -> None:
    done = import_dataset("lethal", source, tmp_path / "out", workers=2, skip_bad=True)
    assert {key: "was killed" in reason for key, reason in done.left_out.items()} == {"RE2-OB/s_cpu/1": True}
    assert len(open_dataset(tmp_path / "out").episodes) == 2
    assert not list((tmp_path / "out" / "episodes").glob("*.incomplete"))


@pytest.mark.parametrize("time", ["-9223372036854775808", "9223372036854775807", "1e999", "x", "\x1b[2J"])
def test_one_bad_case_is_left_out(time: str, source: Path, tmp_path: Path) -> None:
    bad = source / "RE2-OB" / "s_cpu" / "1"
    (bad / "inject_time.txt").write_text(time)
    (bad / "simple_metrics.csv").write_text(f"time,s_cpu\n{time},1\n{time},{time}\n")
    result = run("dataset", "import", "rcaeval", source, tmp_path / "out", "--workers", 1, "--skip-bad")
    assert result.exit_code == 0, result.output
    assert "Skipped RE2-OB/s_cpu/1: " in result.stderr
    assert "\x1b" not in result.stderr
    open_dataset(tmp_path / "out").check_files(1)


RECORDS = ["[]", "{}", "[" * 100_000, "\xff", '{"format": "x", "path": 5, "cases": {}}', '{"cases": {"../x": "y"}}']


@pytest.mark.parametrize("record", RECORDS)
def test_a_damaged_record_of_an_import_is_named(record: str, source: Path, tmp_path: Path) -> None:
    import_dataset("rcaeval", source, tmp_path / "out", workers=1)
    (tmp_path / "out" / "imports" / "0.json").write_text(record, encoding="latin-1")
    assert "imports/0.json" in refused("dataset", "import", "rcaeval", source, tmp_path / "out")


def places(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    return {
        "below a file": tmp_path / "file" / "x",
        "in /proc": Path("/proc/faultset"),
        "long": tmp_path / ("n" * 300),
        "below a loop": tmp_path / "loop" / "x",
        "with NUL": tmp_path / "a\0b",
    }


@pytest.mark.parametrize("place", ["below a file", "in /proc", "long", "below a loop"])
def test_a_place_that_cannot_be_written_is_named(place: str, source: Path, tmp_path: Path) -> None:
    out = places(tmp_path)[place]
    refused("dataset", "import", "rcaeval", source, out)
    import_dataset("rcaeval", source, tmp_path / "data", workers=1)
    refused("dataset", "export", tmp_path / "data", out, "--as", "wide-csv")


@pytest.mark.parametrize("step", ["0s", f"{'9' * 400}s", "99999999h"])
def test_a_step_that_makes_no_sense_is_refused(step: str, source: Path, tmp_path: Path) -> None:
    import_dataset("rcaeval", source, tmp_path / "data", workers=1)
    result = run("dataset", "export", tmp_path / "data", tmp_path / "x", "--as", "wide-csv", "--step", step)
    assert result.exit_code == 2
    assert not (tmp_path / "x").exists()


def test_an_export_removes_nothing_of_the_user(source: Path, tmp_path: Path) -> None:
    import_dataset("rcaeval", source, tmp_path / "data", workers=1)
    for name in ("out.incomplete", ".out.incomplete"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    refused("dataset", "export", tmp_path / "data", tmp_path / "out", "--as", "wide-csv")
    assert (tmp_path / "out.incomplete" / "mine.txt").is_file()
    assert (tmp_path / ".out.incomplete" / "mine.txt").is_file()


def test_our_own_export_is_recognised_without_an_error(source: Path, tmp_path: Path) -> None:
    import_dataset("rcaeval", source, tmp_path / "data", workers=1)
    run("dataset", "export", tmp_path / "data", tmp_path / "out", "--as", "rcaeval")
    assert run("dataset", "doctor", tmp_path / "out").exit_code == 0


def tar_of(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()


CASE = {"RE2-OB/s_cpu/1/simple_metrics.csv": b"time,s_cpu\n1,2\n" * 2000, "RE2-OB/s_cpu/1/inject_time.txt": b"1"}


def _flipped(content: bytes) -> bytes:
    return content[: len(content) // 2] + bytes(32) + content[len(content) // 2 + 32 :]


def _zip_field(offset_local: int, offset_central: int, value: int) -> bytes:
    content = bytearray(zip_of(CASE))
    struct.pack_into("<H", content, offset_local, value)
    place = content.index(b"PK\x01\x02")
    while place >= 0:
        struct.pack_into("<H", content, place + offset_central, value)
        place = content.find(b"PK\x01\x02", place + 4)
    return bytes(content)


ARCHIVES = {f"flipped{suffix}": _flipped(pack(tar_of(CASE))) for suffix, pack in COMPRESSED.items() if suffix != ".tar"}
ARCHIVES |= {f"empty{suffix}": b"" for suffix in COMPRESSED}
ARCHIVES |= {f"text{suffix}": b"hello " * 100 for suffix in COMPRESSED}
ARCHIVES |= {
    "flipped.zip": _flipped(zip_of(CASE)),
    "encrypted.zip": _zip_field(6, 8, 1),
    "method.zip": _zip_field(8, 10, 77),
    "long.tar": tar_of({"n" * 300: b""}),
    "deep.tar": tar_of({"d/" * 3000 + "f": b""}),
    "long.zip": zip_of({"n" * 300: b""}),
    "outside.tar": tar_of({"../../x": b"x"}),
    "bomb.tar.xz": lzma.compress(tar_of({**CASE, "zeros": bytes(3 << 20)}), preset=0),
    "bomb.zip": zip_of({**CASE, "zeros": bytes(3 << 20)}),
}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("command", ["import", "doctor"])
def test_a_damaged_or_hostile_archive_is_one_sentence(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faultset.datasets.imports import archives

    monkeypatch.setattr(archives, "_SMALL_BYTES", 1 << 20)
    path = tmp_path / name
    path.write_bytes(ARCHIVES[name])
    arguments = ["import", "nezha", path, tmp_path / "out"] if command == "import" else ["doctor", path]
    said = refused("dataset", *arguments)
    assert name in said
    if name.startswith("bomb") and command == "import":
        assert "unpacks to more than" in said
    assert not (tmp_path / "x").exists()


def test_a_lock_that_is_a_link_is_not_written_through(source: Path, tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_text("mine")
    import_dataset("rcaeval", source, out, workers=1)
    for name in (".lock", ".import.lock", ".README.md.tmp"):
        (out / name).symlink_to(victim)
    run("dataset", "import", "rcaeval", source, out, "--workers", 1)
    assert victim.read_text() == "mine"
    assert json.loads((out / "versions" / "1.0.0.json").read_text())
