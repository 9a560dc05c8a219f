"""The built wheel beside Hugging Face's `datasets`: neither hides the other."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    program = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    if "No module named 'hatchling'" in done.stderr:
        pytest.skip("needs hatchling")
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, without its dependencies, and a stand-in for Hugging Face's package."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    interpreter = folder / "bin" / "python"
    subprocess.run(
        [interpreter, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel],
        check=True,
        capture_output=True,
    )
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "datasets").mkdir()
    (packages / "datasets" / "__init__.py").write_text("OWNER = 'hugging face'\n")
    return interpreter


def test_every_source_file_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in ("collector", "datasets", "baselines", "evaluators"):
        base = ROOT / package
        files = [path for path in (base / "faultset").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert {path.relative_to(base).as_posix() for path in files} <= names
    assert "faultset/datasets/metrics/metric_roles.csv" in names
    assert not [name for name in names if name.startswith(("datasets/", "collector/", "tests/"))]


@pytest.mark.parametrize("options", [["-c"], ["-P", "-c"]])
def test_import_datasets_at_the_root_is_hugging_faces(python, options):
    program = "import datasets; print(datasets.OWNER)"
    done = subprocess.run([python, *options, program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "hugging face\n", done.stderr


def test_our_namespace_is_found_at_the_root_and_elsewhere(python, tmp_path):
    program = "from faultset.core.errors import DataError; from faultset.core.errors import suggest"
    for folder in (ROOT, tmp_path):
        done = subprocess.run([python, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_uninstalling_leaves_hugging_face_alone(python):
    subprocess.run([python, "-m", "pip", "uninstall", "--yes", "--quiet", "faultset"], check=True, capture_output=True)
    done = subprocess.run(
        [python, "-c", "import datasets; print(datasets.OWNER)"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "hugging face\n"
