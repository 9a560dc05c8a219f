"""What an export takes is said before it begins, and too much is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from faultset.core.console import root as faultset
from faultset.core.errors import DataError, UsageError
from faultset.core.plugins import plugins
from faultset.datasets import export_dataset, open_dataset
from faultset.datasets.cli import exchange as command
from faultset.datasets.exports.exporter import GROUP, ExportOptions, ExportPlan

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
DESCRIPTIONS = 60_000
"""Bytes of what is about all episodes, which a trial of one episode counts for each."""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(faultset, ["dataset", "export", *(str(argument) for argument in arguments)])


@pytest.mark.parametrize("layout", sorted(plugins(GROUP)))
def test_the_expected_size_is_about_the_size(layout: str, few_episodes: Path, tmp_path: Path):
    plans: list[ExportPlan] = []
    options = ExportOptions(roles=["cpu", "latency"])
    target = tmp_path / "out"
    done = export_dataset(layout, few_episodes, target, options=options, max_bytes=None, announce=plans.append)
    (plan,) = plans
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert size / 2 - DESCRIPTIONS < plan.expected_bytes < size * 2 + DESCRIPTIONS
    assert plan.faulty + plan.healthy == done.episodes
    assert plan.expected_s > 0
    assert not [path.name for path in target.iterdir() if path.name.startswith(".")]


def test_a_large_export_is_refused_without_yes_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "MAX_GB", 0.001)
    result = run(SAMPLE, tmp_path / "out", "--as", "windows")
    assert result.exit_code == 2
    assert "10 episodes (7 with a fault, 3 without), about" in result.stderr
    assert "--yes" in result.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
    dry = run(SAMPLE, tmp_path / "out", "--as", "windows", "--dry-run")
    assert dry.exit_code == 0
    assert dry.stderr.startswith("10 episodes (7 with a fault, 3 without), about")
    assert len(dry.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    assert run(SAMPLE, tmp_path / "out", "--as", "windows", "--roles", "cpu", "--yes").exit_code == 0


def test_progress_ends_when_everything_is_written(example_root: Path, tmp_path: Path):
    """The last step is only counted when all windows have been read."""
    steps: list[tuple[int, int, int]] = []

    def watch(finished: int, total: int) -> None:
        written = sum(1 for path in tmp_path.rglob("values.npy") if np.load(path, mmap_mode="r").any())
        steps.append((finished, total, written))

    export_dataset("windows", example_root, tmp_path / "out", options=ExportOptions(step_s=0.5), progress=watch)
    assert {total for _, total, _ in steps} == {4}
    assert [finished for finished, _, _ in steps] == sorted(finished for finished, _, _ in steps)
    assert next(written for finished, _, written in steps if finished == 1) == 0
    assert steps[-1] == (4, 4, 2)


def test_windows_per_service_have_one_set_of_columns_and_name_their_service(example_root: Path, tmp_path: Path):
    assert run(example_root, tmp_path / "out", "--as", "windows", "--step", "500ms", "--per-service").exit_code == 0
    dataset = open_dataset(example_root)
    for side, episodes in dataset.splits["by-episode"].items():
        names = np.load(tmp_path / "out" / side / "services.npy")
        of = np.load(tmp_path / "out" / side / "episodes.npy")
        assert {*of.tolist()} == {*episodes}
        for episode in episodes:
            assert {*names[of == episode].tolist()} == {*dataset.view(episode).services}
        labels = np.load(tmp_path / "out" / side / "labels.npy")
        for episode, service in {*zip(of[labels.any(axis=1)], names[labels.any(axis=1)], strict=True)}:
            assert service in dataset.label(str(episode)).targets


def test_services_are_refused_where_a_layout_has_no_windows(example_root: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="needs a layout with windows"):
        export_dataset("wide-csv", example_root, tmp_path / "out", options=ExportOptions(per_service=True))


@pytest.mark.parametrize("step", ["inf", "9" * 400 + "h", "1000h", "0s", "-1s", "nan"])
def test_an_impossible_step_is_one_sentence(step: str, example_root: Path, tmp_path: Path):
    result = run(example_root, tmp_path / "out", "--as", "wide-csv", "--step", step)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["/proc/x", "n" * 300, "file/x", "loop/x", "/dev/null/x"])
def test_a_folder_that_cannot_be_written_is_one_sentence(name: str, example_root: Path, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    result = run(example_root, tmp_path / name, "--as", "wide-csv")
    assert result.exit_code in (2, 3)
    assert [line[:7] for line in result.stderr.splitlines()] == ["Error: "]
    assert {path.name for path in tmp_path.iterdir()} == {"file", "loop"}


def test_folders_of_the_user_beside_the_target_are_left_alone(example_root: Path, tmp_path: Path):
    for name in ("out.incomplete", ".out.incomplete"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="holds other data"):
        export_dataset("wide-csv", example_root, tmp_path / "out")
    assert [path.read_text() for path in tmp_path.rglob("mine.txt")] == ["mine", "mine"]
