from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.core.landlock import landlock_version
from faultset.datasets import open_dataset
from faultset.evaluators.cli.agent_server import _confine, serve

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
