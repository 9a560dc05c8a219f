"""An episode whose pieces come from two runs of the same plan is found."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq

from faultset.datasets.checks.verification import verify
from faultset.datasets.format.episodes import WRITTEN, run_digest
from faultset.datasets.format.schemas import TABLES, time_column
from faultset.datasets.format.versions import create_version

START_NS = 1_760_000_000_000_000_000
SECOND = 1_000_000_000


def state(at_ns: int, name: str) -> dict:
    return {"time": at_ns, "kind": "Deployment", "name": name, "service": name, "state": "{}"}


def patch(at_ns: int, name: str) -> dict:
    return {
        "seq": 1,
        "state": "intent",
        "verb": "patch",
        "time_ns": at_ns,
        "args": {"kind": "Deployment", "name": name},
    }


def journal_errors(root) -> list[str]:
    create_version(root, provenance={})
    return [finding.message for finding in verify(root) if finding.check == "journal"]


def test_changes_that_the_telemetry_shows_are_right(tmp_path, write_episode):
    listed = [state(START_NS, name) for name in ("geo", "rate", "user", "search")]
    write_episode(journal=[patch(START_NS + SECOND, "geo")], objects=[*listed, state(START_NS + SECOND + 7, "geo")])
    assert journal_errors(tmp_path) == []


def test_changes_of_another_run_are_found(tmp_path, write_episode):
    listed = [state(START_NS, name) for name in ("geo", "rate", "user", "search")]
    write_episode(journal=[patch(START_NS + SECOND, "geo")], objects=[*listed, state(START_NS + 9 * SECOND, "geo")])
    assert "none of the changes that the journal holds" in journal_errors(tmp_path)[0]


def test_telemetry_of_another_run_does_not_have_the_digest_of_the_journal(tmp_path, write_episode):
    first = write_episode("e1", objects=[state(START_NS + 5, "geo")])
    second = write_episode("e2", objects=[state(START_NS + 6, "geo")])
    for folder in (first, second):
        times = {name: pq.read_table(folder / "telemetry" / f"{name}.parquet")[time_column(name)] for name in TABLES}
        digest = run_digest(times, view_start_ns=START_NS, inject_start_ns=None)
        note = {"seq": 1, "state": "note", "verb": WRITTEN, "time_ns": START_NS, "args": {"digest": digest}}
        (folder / "truth" / "journal.jsonl").write_text(json.dumps(note) + "\n")
    assert journal_errors(tmp_path) == []
    shutil.copy(second / "truth" / "journal.jsonl", first / "truth" / "journal.jsonl")
    (message,) = journal_errors(tmp_path)
    assert "not of the same run" in message
