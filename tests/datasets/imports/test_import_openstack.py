"""The OpenStack failure dataset on a small test in its documented shape, and its traps."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.imports.formats.openstack import OpenStackImport
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer

BEGAN = 1_529_976_000
"""01:20:00 UTC on 2018-06-26; logs are two hours ahead."""
SECOND = 10**9


def local(second: float) -> str:
    return datetime.fromtimestamp(BEGAN + second + 7200, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def line(second: float, level: str, text: str, request: str = "") -> str:
    return f"{local(second)[:-3]} 1867 {level} nova.compute.manager {f'[{request} - - -] ' if request else ''}{text}\n"


def span(second: float, topic: str, code: str, *, error: bool = False) -> list[dict]:
    told = {
        "caller_1:": f"('/usr/lib/python2.7/site-packages{code}', 1, 'call')",
        "target": f"<Target topic={topic}, version=1.0>",
        "method ": "build",
        "message  ": "{'_context_request_id': 'req-0a'}",
    } | ({"error": "yes"} if error else {})
    return [
        {
            "traceId": f"{second}",
            "id": f"{second}{topic}",
            "timestamp": round((BEGAN + second) * 1e6),
            "duration": 500,
            "binaryAnnotations": [{"key": key, "value": value} for key, value in told.items()],
        }
    ]


def write_round(folder: Path, name: str, second: int, *, error: bool) -> None:
    for part in ("nova", "foreground_wl"):
        (folder / part).mkdir(parents=True)
    client = [f"{local(second + at)} INFO [sample_workload.sh]: step\n" for at in (0, 100)]
    began = BEGAN + second - 30
    (folder / "foreground_wl" / f"workload-{began}.out.log.bzip2.out").write_text("".join(client))
    lines = [line(second - 5, "INFO", "before"), line(second + 10, "DEBUG", "works", "req-0a")]
    if error:
        lines += [line(second + 70, "ERROR", "broke\nTraceback\n  more")]
    (folder / "nova" / "nova-compute.log.bzip2.out").write_text("".join(lines))
    (folder / "nova" / "nova-api.log.bzip2.out").write_text(line(second + 1, "INFO", "asked"))
    spans = [span(second + 11, "compute", "/nova/api/x.py"), span(second + 71, "nothing", "/oslo/a.py", error=error)]
    (folder / f"trace_{name}.log").write_text(json.dumps(spans))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "openstack"
    logs = root / "Nova" / "Test_7" / "logs"
    write_round(logs / "round_1", "Test_7_round_1", 0, error=True)
    write_round(logs / "round_2", "Test_7_round_2", 900, error=False)
    (logs / "round_1" / "trigger_log").write_text(f"{local(65)} [manager.pyc]: Injection activated!\n")
    header = "TEST\tFAULT_TYPE\tCOMPONENT\tCLASS\tFUNCTION\tROUND_1\tROUND_2\n"
    row = "Test_7\tOPENSTACK_THROW_EXCEPTION-INSTANCE\t/nova/compute/manager.py\tM\tf+1\tFAILURE\tNO_FAILURE\n"
    (root / "nova.tsv").write_text(header + row)
    return root


def test_the_round_without_the_fault_is_the_reference(root: Path, tmp_path: Path) -> None:
    import_dataset("openstack", root, tmp_path / "out")
    dataset = open_dataset(tmp_path / "out")
    assert not [found for found in verify(tmp_path / "out") if found.severity == "error"]
    (episode,) = dataset.episodes
    view, label = dataset.view(episode), dataset.label(episode)
    start_ns, end_ns = view.reference
    assert (end_ns - start_ns) / SECOND == 101
    assert end_ns == BEGAN * SECOND
    assert label.inject_start_ns == (BEGAN + 65) * SECOND
    assert [cause.service for cause in label.root_causes] == ["nova-compute"]
    assert label.verdict == "manifest"
    logs = view.logs()
    # continuations stay with their line, and what was logged outside of the workload is left out
    assert sorted(logs["message"]) == ["asked", "asked", "broke\nTraceback\n  more\n".rstrip(), "works", "works"]
    assert set(logs["level"].dropna()) == {"info", "debug", "error"}
    assert set(logs["trace_id"].dropna()) == {"req-0a"}
    spans = view.spans()
    assert sorted(spans["status"]) == ["error", "unset", "unset", "unset"]
    called = spans[spans["peer_service"].notna()]
    assert set(zip(called["service"], called["peer_service"], strict=True)) == {("nova-api", "nova-compute")}
    assert view.calls == (("nova-api", "nova-compute"),)


def test_a_test_whose_fault_never_ran_is_named(root: Path, tmp_path: Path) -> None:
    (root / "Nova" / "Test_7" / "logs" / "round_1" / "trigger_log").write_text("")
    (issue,) = examine(root).data_issues
    assert issue.severity == "error"
    with pytest.raises(DataError, match="needs an activation of its fault"):
        import_dataset("openstack", root, tmp_path / "out")


def test_a_table_without_its_columns_is_refused(root: Path) -> None:
    (root / "nova.tsv").write_text("TEST\tFAULT_TYPE\nTest_7\tx\n")
    with pytest.raises(DataError, match="has no column COMPONENT, CLASS"):
        OpenStackImport().cases(root)


def test_the_importer_keeps_what_importers_promise(root: Path) -> None:
    check_importer("openstack", root)
