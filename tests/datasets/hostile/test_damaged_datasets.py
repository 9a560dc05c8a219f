"""Whatever the files of a dataset hold, reading it ends in one sentence and exit code 3, before a method sees it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from faultset.core.console import root as faultset
from faultset.core.errors import DataError
from faultset.datasets import open_dataset, verify
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format import storage

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.
DEEP = "[" * 100_000 + "]" * 100_000
Damage = Callable[[Path], object]
"""Changes an episode's folder, or the dataset folder."""


@pytest.fixture(scope="session")
def small_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    write_example_dataset(root, episodes=2, baseline_s=10, fault_s=10)
    return root


@pytest.fixture
def root(small_root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_root, tmp_path / "data"))


@pytest.fixture
def episode(root: Path) -> Path:
    """The folder of the episode with a fault."""
    dataset = open_dataset(root)
    return next(dataset.path(name) for name in dataset.episodes if dataset.label(name).is_faulty)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(faultset, [str(argument) for argument in arguments])


def assert_one_sentence(result: Result, *codes: int) -> None:
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in codes, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == (1 if result.exit_code else 0), result.stderr
    assert "\x1b" not in result.output
    assert "Traceback" not in result.output


def assert_refused(root: Path) -> None:
    """What evaluate and export do first ends in a DataError, and verify finds it."""
    with pytest.raises(DataError) as caught:
        open_dataset(root).check_files(1)
    assert str(caught.value).isprintable()
    assert_found(root)


def assert_commands_refuse(root: Path, out: Path) -> None:
    for command in ("show", "episodes"):
        assert_one_sentence(run("dataset", command, root), 0, 3)
    assert_one_sentence(run("dataset", "explore", root, "--out", out.with_suffix(".html")), 3)
    assert_one_sentence(run("dataset", "export", root, out, "--as", "wide-csv"), 3)
    assert not out.exists()
    assert not out.with_suffix(".html").exists()


def assert_found(root: Path) -> None:
    try:
        messages = [finding.message for finding in verify(root) if finding.severity == "error"]
    except DataError as error:
        messages = [str(error)]
    assert messages
    assert all(message.isprintable() for message in messages)


def context(**changes: Any) -> Damage:
    def change(episode: Path) -> None:
        file = episode / "context.json"
        content = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({name: value for name, value in content.items() if value != "absent"}))

    return change


def content(name: str, text: str | bytes) -> Damage:
    return lambda episode: (episode / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def table(name: str, change: Callable[[pa.Table], pa.Table], **options: Any) -> Damage:
    def rewrite(episode: Path) -> None:
        file = episode / name
        pq.write_table(change(pq.read_table(file)), file, **options)

    return rewrite


def column(name: str, values: Callable[[pa.Table], Any]) -> Callable[[pa.Table], pa.Table]:
    """Replace a column, as one that may hold nulls."""

    def change(rows: pa.Table) -> pa.Table:
        made = values(rows)
        return rows.set_column(rows.column_names.index(name), pa.field(name, made.type), made)

    return change


def nulled(name: str) -> Callable[[pa.Table], pa.Table]:
    return column(name, lambda rows: pa.nulls(len(rows), rows[name].type))


def text_of(name: str, text: str) -> Callable[[pa.Table], pa.Table]:
    return column(name, lambda rows: pa.array([text] * len(rows)))


def _many_rows(path: str, rows: int) -> Damage:
    """Write a table of very many equal rows, which takes little space."""

    def write(episode: Path) -> None:
        one = pq.read_table(episode / path).slice(0, 1)
        many = one.take(pa.array(np.zeros(rows, dtype=np.int32)))
        pq.write_table(many, episode / path, compression="zstd", row_group_size=1 << 22)

    return write


@pytest.fixture(autouse=True)
def _fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing as many rows as the limit allows would take minutes."""
    monkeypatch.setattr(storage, "TELEMETRY_LIMITS", storage.TableLimits(rows=100_000, file_bytes=4 << 30))


METRICS, LOGS, SPANS, LABEL = (
    f"{place}.parquet" for place in ("telemetry/metrics", "telemetry/logs", "telemetry/spans", "truth/label")
)
BAD_UTF8 = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe"))

EPISODE_DAMAGE: dict[str, Damage] = {
    "metrics cut short": lambda episode: os.truncate(episode / METRICS, 1000),
    "metrics zeroed": lambda episode: (episode / METRICS).write_bytes(bytes((episode / METRICS).stat().st_size)),
    "metrics without value": table(METRICS, lambda rows: rows.drop_columns(["value"])),
    "metrics with text values": table(METRICS, column("value", lambda rows: pc.cast(rows["value"], pa.string()))),
    "metrics without columns": table(METRICS, lambda rows: rows.select([])),
    "metrics with another column": table(METRICS, lambda rows: rows.append_column("x\x1b[2J", rows["value"])),
    "metrics in no order": table(METRICS, lambda rows: rows.take(np.arange(len(rows))[::-1])),
    "metrics without names": table(METRICS, nulled("metric")),
    "metrics of another episode": table(METRICS, text_of("episode", "other")),
    "metrics with labels that are no JSON": table(METRICS, text_of("labels", "{")),
    "metrics with deep labels": table(METRICS, text_of("labels", DEEP)),
    "metrics with names that are not UTF-8": table(
        METRICS, column("metric", lambda rows: BAD_UTF8.take(pa.array(np.zeros(len(rows), dtype=np.int32))))
    ),
    "spans outside the view": table(
        SPANS, column("time", lambda rows: pc.add(rows["time"], pa.scalar(10**15, "duration[ns]")))
    ),
    "spans with attributes that are no object": table(SPANS, text_of("attributes", "[1]")),
    "logs of many rows": _many_rows(LOGS, 1 << 20),
    "label of many rows": _many_rows(LABEL, 1 << 17),
    "label of no row": table(LABEL, lambda rows: rows.slice(0, 0)),
    "label without parameters": table(LABEL, lambda rows: rows.drop_columns(["parameters"])),
    "label with parameters that are no JSON": table(LABEL, text_of("parameters", "{{")),
    "label with deep parameters": table(LABEL, text_of("parameters", DEEP)),
    "label with null parameters": table(LABEL, nulled("parameters")),
    "label with null targets": table(LABEL, nulled("targets")),
    "label with null causes": table(LABEL, nulled("root_causes")),
    "label with a number for a fault": table(LABEL, column("fault", lambda rows: pa.array([5]))),
    "label with escapes in its fault": table(LABEL, text_of("fault", "\x1b]0;title\x07\x1b[2J")),
    "label of another verdict": table(LABEL, text_of("verdict", "guilty")),
    "label of another episode": table(LABEL, text_of("episode", "other")),
    "context deep": content("context.json", DEEP),
    "context not UTF-8": content("context.json", b'\xff{"schema_version": 1}'),
    "context a list": content("context.json", "[]"),
    "context empty": content("context.json", ""),
    "context of another episode": context(episode="other"),
    "context with a path for an id": context(episode="../../x"),
    "context with services a number": context(services=5),
    "context with services of numbers": context(services=[1, 2]),
    "context without services": context(services="absent"),
    "context with calls malformed": context(calls=[["a", "b", "c"]]),
    "context with a text for the start": context(view_start_ns="1"),
    "context with the start at zero": context(view_start_ns=0),
    "context with a very late end": context(view_end_ns=2**80),
    "context with a view of a year": context(view_start_ns=10**18),
    "context with intervals no mapping": context(source_intervals_s=5),
    "context with a tiny interval": context(source_intervals_s={"metrics": 1e-9}),
    "context with a negative interval": context(source_intervals_s={"metrics": -1.0}),
    "context with an infinite interval": context(source_intervals_s={"metrics": float("inf")}),
    "context with no number for an interval": context(source_intervals_s={"metrics": float("nan")}),
    "context with roles of another kind": context(metric_roles=[{"a": "b"}]),
    "context with roles no list": context(metric_roles=5),
    "context with an unknown role": context(
        metric_roles=[{"source": "x", "metric": "up", "role": "magic", "unit": "1", "kind": "gauge", "combine": "sum"}]
    ),
    "context with app a number": context(app=5),
    "context with app null": context(app=None),
    "context with escapes in its app": context(app="\x1b[2J"),
    "context with a text for the move": context(reference_moved_ns="x"),
    "context with an unknown key": context(more=1),
    "context of another schema version": context(schema_version=99),
    "journal deep": content("truth/journal.jsonl", DEEP + "\n"),
    "journal of numbers": content("truth/journal.jsonl", "5\n"),
    "evidence without columns": table("truth/evidence.parquet", lambda rows: rows.select([])),
}


@pytest.mark.parametrize("name", EPISODE_DAMAGE)
def test_damage_of_an_episode_that_the_version_does_not_show_is_found(
    name: str, root: Path, episode: Path, tmp_path: Path, recorded_again: Callable[[Path], None]
) -> None:
    EPISODE_DAMAGE[name](episode)
    recorded_again(root)
    assert_refused(root)
    assert_commands_refuse(root, tmp_path / "out")


def manifest(change: Callable[[dict[str, Any]], object]) -> Damage:
    def rewrite(root: Path) -> None:
        file = root / "versions" / "1.0.0.json"
        read = json.loads(file.read_text())
        change(read)
        file.write_text(json.dumps(read))

    return rewrite


def first_files(read: Mapping[str, Any]) -> dict[str, Any]:
    return next(iter(read["episodes"].values()))


def renamed(new: str) -> Callable[[dict[str, Any]], object]:
    def change(read: dict[str, Any]) -> None:
        read["splits"] = {}
        old = next(iter(read["episodes"]))
        read["episodes"][new] = read["episodes"].pop(old)

    return change


def listed(path: str) -> Callable[[dict[str, Any]], object]:
    return lambda read: first_files(read).update({path: {"bytes": 1, "sha256": "0" * 64, "rows": None}})


VERSION_DAMAGE: dict[str, Damage] = {
    "deep": lambda root: (root / "versions" / "1.0.0.json").write_text('{"schema_version": 1, "x":' + DEEP + "}"),
    "episodes a list": manifest(lambda read: read.update(episodes=[])),
    "files null": manifest(lambda read: read["episodes"].update({next(iter(read["episodes"])): None})),
    "record with another key": manifest(lambda read: first_files(read)["context.json"].update(extra=1)),
    "record without its size": manifest(lambda read: first_files(read)["context.json"].pop("bytes")),
    "record with a negative size": manifest(lambda read: first_files(read)["context.json"].update(bytes=-1)),
    "splits null": manifest(lambda read: read.update(splits=None)),
    "split without test episodes": manifest(lambda read: read["splits"]["by-episode"].pop("test")),
    "split with an unknown episode": manifest(lambda read: read["splits"]["by-episode"]["test"].append("e0")),
    "split with one episode twice": manifest(
        lambda read: read["splits"].update(twice={"key": "", "train": [*read["episodes"]], "test": [*read["episodes"]]})
    ),
    "provenance null": manifest(lambda read: read.update(provenance=None)),
    "another version": manifest(lambda read: read.update(version="9.9.9")),
    "a path for a version": manifest(lambda read: read.update(version="../../x")),
    "a path for an id": manifest(renamed("../../../x")),
    "an absolute path for an id": manifest(renamed("/tmp/x")),
    "NUL in an id": manifest(renamed("a\0b")),
    "half a surrogate pair in an id": manifest(renamed("\ud800")),
    "an absolute path for a file": manifest(listed("/etc/passwd")),
    "a path outside for a file": manifest(listed("../../../etc/passwd")),
    "an episode that is not there": manifest(renamed("e0")),
}


@pytest.mark.parametrize("name", VERSION_DAMAGE)
def test_damage_of_a_version_file_is_found(name: str, root: Path, tmp_path: Path) -> None:
    VERSION_DAMAGE[name](root)
    assert_refused(root)
    assert_commands_refuse(root, tmp_path / "out")


def replaced(path: str, make: Callable[[Path], object]) -> Damage:
    def change(root: Path) -> None:
        place = next(iter(root.glob(path)))
        place.rename(root.parent / "away")
        make(place)

    return change


def _socket(place: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(place.parent)  # names of sockets are short
        try:
            made.bind(place.name)
        finally:
            os.chdir(here)


PLACES = {"table": "episodes/*/telemetry/logs.parquet", "context": "episodes/*/context.json"}
PLACES |= {"label": "episodes/*/truth/label.parquet", "journal": "episodes/*/truth/journal.jsonl"}
PLACES |= {"version": "versions/1.0.0.json", "episodes": "episodes", "telemetry": "episodes/*/telemetry"}
KINDS: dict[str, Callable[[Path], object]] = {
    "loop of links": lambda place: place.symlink_to(place.name),
    "link to a device": lambda place: place.symlink_to("/dev/zero"),
    "link to what was there": lambda place: place.symlink_to(place.parents[-2] / "away"),
    "pipe": lambda place: os.mkfifo(place),
    "folder": lambda place: place.mkdir(),
    "socket": _socket,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_never_opened(place: str, kind: str, root: Path) -> None:
    if kind == "link to what was there":
        replaced(PLACES[place], lambda at: at.symlink_to(root.parent / "away"))(root)
    else:
        replaced(PLACES[place], KINDS[kind])(root)
    assert_refused(root)


def test_a_link_to_a_dataset_folder_is_the_users_own(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    open_dataset(link).check_files(1)


def test_a_card_shows_no_markup_of_the_data(root: Path, episode: Path) -> None:
    from faultset.datasets import create_version

    context(app="<svg onload=alert(1)>|x")(episode)
    create_version(root, provenance={"by": "</pre>```<svg onload=alert(1)>"})
    assert "<svg" not in (root / "README.md").read_text()


NOT_ABOVE_PERMISSIONS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Runs a command of root without the right to read what belongs to others."""


@pytest.mark.parametrize("place", ["context.json", "telemetry/logs.parquet", ""])
def test_what_this_user_may_not_read_is_one_sentence(place: str, root: Path, episode: Path) -> None:
    as_user = NOT_ABOVE_PERMISSIONS if os.geteuid() == 0 else []
    if as_user and shutil.which(as_user[0]) is None:
        pytest.skip("root reads everything, and setpriv is not installed")
    (episode / place).chmod(0)
    if as_user:
        os.chown(episode / place, 65534, 65534)
    program = "from faultset.core.start import faultset; faultset()"
    command = [*as_user, sys.executable, "-c", program, "dataset", "export", root, root.parent / "out"]
    done = subprocess.run([*command, "--as", "wide-csv"], capture_output=True, text=True)
    (episode / place).chmod(0o700)
    assert done.returncode == 3
    assert "Permission denied" in done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("Error: ")] == done.stderr.splitlines()[-1:]
    assert "Traceback" not in done.stderr
