"""The repair of a live fault as an Inspect task."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from faultset.core.errors import UsageError
from faultset.core.processes import python_command
from faultset.evaluators.agent_tasks.live import _LiveEpisode, _LiveEpisodes, mitigation
from tests.collector.mitigation.test_attempts import RIGHT

from .conftest import Run, called, mock

GEO: dict[str, Any] = {"faults": "target-port", "apps": "hotel", "targets": "geo", "rate": 10}


@pytest.mark.slow
def test_an_agent_repairs_a_live_service_which_the_judge_confirms(run: Run) -> None:
    outputs = [
        called("kubectl", command="kubectl get svc geo -o yaml | grep -i port"),
        called("kubectl", command="kubectl -n kube-system delete pod --all"),
        called("kubectl", command=RIGHT),
        called("wait", seconds=5),
        called("submit_mitigation", summary="the port of geo"),
    ]
    log = run(mitigation(**GEO), mock(outputs))
    assert log.samples
    (sample,) = log.samples
    assert sample.error is None, sample.error.traceback
    score = (sample.scores or {})["repaired"]
    assert score.value == 1.0, score.explanation
    commands = (score.metadata or {})["commands"]
    assert [one["status"] for one in commands] == ["done", "refused", "done"]
    assert sample.store["faultset"]["answer"] == {"summary": "the port of geo"}


def test_an_episode_that_cannot_run_is_an_error_of_the_sample_and_no_failed_repair(run: Run) -> None:
    log = run(mitigation(faults="targt-port", apps="hotel"), mock([]))
    assert log.samples
    (sample,) = log.samples
    assert sample.error is not None
    assert 'the live episode failed: Error: unknown fault "targt-port"' in sample.error.message
    assert not sample.scores


def test_a_task_without_a_fault_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="-T faults=target-port -T apps=hotel"):
        mitigation(apps="hotel")


def test_each_fault_meets_each_application() -> None:
    task = mitigation(faults=["target-port", "pod-kill"], apps="hotel, social")
    assert [sample.id for sample in task.dataset] == [
        "target-port@hotel",
        "target-port@social",
        "pod-kill@hotel",
        "pod-kill@social",
    ]


def test_what_is_still_running_when_a_sample_ends_is_interrupted_and_removed(tmp_path: Path) -> None:
    """A sample may fail before its scorer runs; its fault must not stay."""
    mark = tmp_path / "undone"
    code = (
        "import pathlib, time\n"
        "try:\n    print('up', flush=True)\n    time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    pathlib.Path({str(mark)!r}).touch()\n"
    )
    process = subprocess.Popen(python_command("-c", code), stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    folder = tempfile.TemporaryDirectory()
    episodes = _LiveEpisodes(1)
    episodes._running["sample"] = _LiveEpisode(folder, process)

    class State:
        uuid = "sample"

    anyio.run(episodes.end, cast("Any", State()))
    process.stdout.close()
    assert mark.exists()
    assert not Path(folder.name).exists()
