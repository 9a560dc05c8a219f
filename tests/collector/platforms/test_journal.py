"""The durable journal and the inverses in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faultset.collector.platforms.journal import Journal, reverse_change, undo_of_delete
from faultset.collector.platforms.objects import merge
from faultset.core.files import read_json_lines

OBJECT = {"spec": {"replicas": 1, "selector": {"a": "b"}, "ports": [{"port": 1}]}, "metadata": {"labels": {}}}


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"replicas": 0}},
        {"spec": {"ports": [{"port": 2}, {"port": 3}]}},
        {"spec": {"nodeSelector": {"host": "x"}}},
        {"spec": {"selector": None}},
        {"spec": {"selector": {"a": None, "c": "d"}}},
        {"metadata": {"annotations": {"x": "y"}}, "spec": {"replicas": 3}},
        {"spec": "not a mapping any more"},
    ],
)
def test_the_inverse_of_a_merge_patch_brings_the_object_back(change: dict) -> None:
    after = merge(OBJECT, change)
    assert after != OBJECT
    assert merge(after, reverse_change(OBJECT, change)) == OBJECT


def test_merge_changes_neither_argument() -> None:
    change = {"spec": {"selector": {"c": "d"}}}
    merge(OBJECT, change)
    assert OBJECT["spec"]["selector"] == {"a": "b"}
    assert change == {"spec": {"selector": {"c": "d"}}}


def test_a_deleted_claim_comes_back_after_its_volume_was_released() -> None:
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "geo-pvc", "uid": "u1", "resourceVersion": "5"},
        "spec": {"volumeName": "geo-pv"},
        "status": {"phase": "Bound"},
    }
    release, apply = undo_of_delete(claim)
    assert release == {"verb": "release-claim", "volume": "geo-pv"}
    assert apply["object"]["metadata"] == {"name": "geo-pvc"}
    assert "status" not in apply["object"]


def test_a_journal_read_again_after_a_crash_knows_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    with journal.operation("patch", {}, [{"verb": "patch", "name": "one"}]):
        pass
    path.write_bytes(path.read_bytes() + b'{"seq": 9, "sta')
    again = Journal(path)
    assert [seq for seq, _ in again.open_undo_operations()] == [1]
    assert len(read_json_lines(path)) == 2


def test_discarded_records_leave_open_operations_in_memory_and_all_lines_in_the_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    inverse: list[dict[str, Any]] = [{"verb": "patch", "name": "one"}]
    with journal.operation("patch", {}, inverse) as undone, journal.scope("later"):
        journal.note("decoy")
    with journal.scope("incident"), journal.operation("patch", {}, inverse) as still_open:
        pass
    journal.mark_undone(undone)
    written = len(journal.records)
    journal.note("after the chunk")
    assert journal.discard(written) == 1
    assert [record["verb"] for record in journal.records] == ["patch", "after the chunk"]
    assert [seq for seq, _ in journal.open_undo_operations("incident")] == [still_open]
    journal.mark_undone(still_open)
    assert journal.discard(len(journal.records)) == 0
    assert len(read_json_lines(tmp_path / "j")) == written + 2
