from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.core.landlock import landlock_version
from faultset.core.times import SECOND_NS, utc_text
from faultset.datasets import EpisodeView, open_dataset
from faultset.evaluators.cli.agent_server import _confine, _describe_start, _open_folder, serve
from tests.datasets.recorded_samples import at
from tests.evaluators.recordings.recording_samples import recorded_dataset

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
EPISODE = "a5edb68659bc"


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_the_serving_process_reads_the_view_and_nothing_else_of_the_dataset(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, sample := tmp_path / "sample", ignore=shutil.ignore_patterns(".cache"))
    (out := tmp_path / "out").mkdir()
    episode = open_dataset(sample)[EPISODE]
    readable = [path for path in sorted(sample.rglob("*")) if path.is_file()]
    child = os.fork()
    if not child:
        try:
            _confine(episode.path, out / "answer.json")
            read = [path.relative_to(sample).as_posix() for path in readable if _can_be_read(path)]
            (out / "read").write_text("\n".join(read))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    below = f"episodes/{EPISODE}"
    wanted = {f"{below}/context.json", *(f"{below}/telemetry/{table}.parquet" for table in episode.context.tables)}
    assert set((out / "read").read_text().splitlines()) == wanted


def _can_be_read(path: Path) -> bool:
    try:
        path.read_bytes()
    except PermissionError:
        return False
    return True


def test_an_unknown_episode_is_one_sentence() -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    done = CliRunner().invoke(serve, [str(SAMPLE), "--episode", "nothing"])
    assert done.exit_code == 3
    assert "no episode" in done.output


def test_a_dataset_without_an_episode_is_one_sentence() -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    done = CliRunner().invoke(serve, [str(SAMPLE)])
    assert done.exit_code == 2
    assert "a dataset needs --episode" in done.output


def test_a_complaint_without_a_time_is_one_sentence() -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    done = CliRunner().invoke(serve, [str(SAMPLE), "--episode", EPISODE, "--complaint"])
    assert done.exit_code == 2
    assert "add --at TIME" in done.output


def test_a_recording_is_offered_around_an_alarm(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path / "hours", {"r1": [(2000, 150)]})
    with ExitStack() as stack:
        time = utc_text(at(2000)).replace(" ", "T")
        view = EpisodeView(_open_folder(stack, dataset.root, "r1", None, time))
        clock, situation = _describe_start(view, None, time, complaint=True)
        assert at(2000) - clock.start_ns == 300 * SECOND_NS
        assert clock.now_ns == at(2060)
    assert situation.startswith('A user complains: "since about')
