"""Notebooks run from the first cell to the last, and are committed without outputs."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

from faultset.datasets import create_version, open_dataset

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
SAMPLE = NOTEBOOKS.parent / "datasets" / "sample"
FILES = sorted(NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path):
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


@pytest.fixture(scope="module")
def two_applications(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few episodes of two applications, cut out of recordings."""
    root = tmp_path_factory.mktemp("notebook")
    recordings = {item.context.app: item for item in open_dataset(SAMPLE.with_name("core-2")).recordings()}
    for app in ("hotel", "tidb"):
        cuts = recordings[app].episodes(before_s=60, after_s=60, healthy=4, out=root / app)
        frame = cuts.labels().assign(healthy=lambda rows: rows["fault"].isna())
        for episode in frame.groupby("healthy").head(4).index:
            shutil.copytree(cuts.path(episode), root / "two" / "episodes" / episode)
    create_version(root / "two", provenance={})
    return root / "two"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of one application."""
    root = tmp_path_factory.mktemp("notebook") / "recordings"
    whole = open_dataset(SAMPLE.with_name("core-2"))
    chosen = next(recording for recording in whole.recordings() if recording.context.app == "tidb")
    shutil.copytree(whole.root / "recordings" / chosen.id, root / "recordings" / chosen.id)
    create_version(root, provenance={})
    return root


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("data", ["sample", pytest.param("two_applications", marks=pytest.mark.slow)])
def test_a_notebook_runs(
    data: str, path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    root = SAMPLE if data == "sample" else request.getfixturevalue(data)
    with warnings.catch_warnings():
        # libraries of the notebook client warn about each other
        warnings.simplefilter("ignore")
        import nbformat
        from nbclient import NotebookClient

        monkeypatch.setenv("FAULTSET_DATASET", str(root))
        monkeypatch.setenv("FAULTSET_RECORDINGS", str(recording))
        monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output["text"] for output in outputs if output.get("name") == "stderr"]
    if path.stem == "03-train-on-hours":
        lines = outputs[-1]["text"].splitlines()
        names = {line.split()[0] for line in lines if " random alarms: " in line}
        assert names == {"my-autoencoder", "my-forest"}
