"""Every package in `examples/` installs beside faultset, passes its own tests, and is the code that its page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
PAGES = {"localizer": "baseline", "detector": "baseline"}
"""Example -> the page that shows it, where it is not called like the example."""
BUILD = """
import os, sys
from hatchling.build import build_wheel  # what pip calls, in a process of its own for each package
folder, *sources = sys.argv[1:]
for source in sources:
    os.chdir(source)
    build_wheel(folder)
"""


def page_of(package: Path) -> Path:
    return ROOT / "docs" / "developing" / f"{PAGES.get(package.name, package.name)}.md"


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ElementTree.Element]]:
    """Install all packages beside each other, run the tests of each, and return the test cases by package."""
    folder = tmp_path_factory.mktemp("examples")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    sources = [shutil.copytree(package, folder / "sources" / package.name, ignore=ignored) for package in PACKAGES]
    for source in sources:
        shutil.move(source / "tests", folder / "tests" / source.name)
    target, wheels = folder / "installed", folder / "wheels"
    wheels.mkdir()
    done = subprocess.run([sys.executable, "-c", BUILD, wheels, *sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    built = sorted(map(str, wheels.glob("*.whl")))
    assert len(built) == len(PACKAGES)
    done = subprocess.run([*pip, "--target", str(target), *built], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "sources")  # what is tested is what was installed
    report = folder / "report.xml"
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        f"--junit-xml={report}",
        f"--rootdir={folder}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder / "tests")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    cases: dict[str, list[ElementTree.Element]] = {package.name: [] for package in PACKAGES}
    for case in ElementTree.parse(report).iter("testcase"):
        cases[case.attrib["classname"].split(".")[1]].append(case)
    return cases


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_an_example_installs_and_passes_its_own_tests(
    package: Path, outcomes: dict[str, list[ElementTree.Element]]
) -> None:
    cases = outcomes[package.name]
    assert cases, "it has no tests"
    wrong = [problem.text for case in cases for problem in case if problem.tag in ("failure", "error", "skipped")]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_the_page_shows_files_of_the_example_as_they_are(package: Path) -> None:
    page = page_of(package).read_text()
    included = re.findall(rf'^--8<-- "examples/{package.name}/([\w/]+\.\w+)"$', page, re.MULTILINE)
    copied = re.findall(r"^`([\w/]+\.\w+)`[^\n]*:\n\n```\w*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    copies = {name: code for name, code in copied if (package / name).exists() and name != "pyproject.toml"}
    assert included or copies or package.name == "detector"
    assert not [name for name in included if not (package / name).is_file()]
    assert not [name for name, code in copies.items() if (package / name).read_text().strip() != code.strip()]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_an_example_announces_itself_and_its_page_shows_how(package: Path) -> None:
    points = tomllib.loads((package / "pyproject.toml").read_text())["project"]["entry-points"]
    page = page_of(package).read_text()
    for group, names in points.items():
        assert f'[project.entry-points."{group}"]' in page
        assert all(f'{name} = "{value}"' in page for name, value in names.items())


def test_every_example_and_every_page_is_in_the_list_of_extensions() -> None:
    index = (ROOT / "docs" / "developing" / "index.md").read_text()
    assert not [package.name for package in PACKAGES if f"`examples/{package.name}`" not in index]
    pages = [path.name for path in (ROOT / "docs" / "developing").glob("*.md") if path.name != "index.md"]
    assert not [name for name in pages if f"({name})" not in index]
