"""Code is known by its content: any edit shows, and the place where it lies does not."""

from __future__ import annotations

import functools
import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from faultset.core.code_identity import (
    UNINSTALLED,
    CodeIdentity,
    code_identity,
    own_digest,
    path_identity,
    plugin_identity,
)
from faultset.core.plugins import plugins

METHOD = "from {package} import helper\n\nclass Method:\n    def answer(self):\n        return helper.VALUE\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path; modules that were imported from it are forgotten."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def package_in(folder: Path, name: str = "acme_methods") -> ModuleType:
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("VALUE = 1\n")
    (package / "weights.json").write_text("[1, 2]")
    (package / "method.py").write_text(METHOD.format(package=name))
    importlib.invalidate_caches()
    return importlib.import_module(f"{name}.method")


@pytest.mark.parametrize("name", ["method.py", "helper.py", "weights.json", "new.py"])
def test_any_file_of_a_package_changes_its_identity(folder: Path, name: str):
    module = package_in(folder)
    before = code_identity(module.Method)
    assert code_identity(module.Method) == before
    with (folder / "acme_methods" / name).open("a") as file:
        file.write("# edited\n")
    after = code_identity(module.Method)
    assert after.digest != before.digest
    assert before.distribution == after.distribution == UNINSTALLED


def test_byte_code_and_the_place_of_a_package_do_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = code_identity(package_in(folder).Method)
    (folder / "acme_methods" / "__pycache__").mkdir(exist_ok=True)
    (folder / "acme_methods" / "__pycache__" / "x.pyc").write_bytes(b"1")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    shutil.move(folder / "acme_methods", elsewhere)
    for name in [name for name in sys.modules if name.startswith("acme_methods")]:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(elsewhere))
    assert code_identity(importlib.import_module("acme_methods.method").Method) == before


def test_a_single_module_counts_with_the_modules_beside_it_that_it_imports(folder: Path):
    (folder / "beside.py").write_text("VALUE = 1\n")
    (folder / "unrelated.py").write_text("VALUE = 1\n")
    (folder / "alone.py").write_text("import beside\n\nclass Method: ...\n")
    importlib.invalidate_caches()
    method = importlib.import_module("alone").Method
    before = code_identity(method)
    (folder / "unrelated.py").write_text("VALUE = 2\n")
    assert code_identity(method) == before
    (folder / "beside.py").write_text("VALUE = 2\n")
    assert code_identity(method) != before


def test_the_arguments_of_a_partial_count():
    first, second = functools.partial(CodeIdentity, digest="a"), functools.partial(CodeIdentity, digest="b")
    assert code_identity(first) != code_identity(second)


def test_a_class_without_a_file_is_known_by_its_byte_code():
    def made(number: int) -> type:
        names: dict[str, type] = {}
        exec(f"class Method:\n    def answer(self):\n        return {number}", {"__name__": "notebook"}, names)
        return names["Method"]

    assert code_identity(made(1)) == code_identity(made(1))
    assert code_identity(made(1)) != code_identity(made(2))


def test_code_of_faultset_counts_with_what_it_imports_and_no_more():
    found = plugins("faultset.baselines")
    spot, mksmc = (plugin_identity(found[name], within="faultset.baselines") for name in ("spot", "mksmc"))
    assert spot.built_in
    assert spot.distribution.startswith("faultset ")
    assert spot.digest != mksmc.digest
    two = (plugin_identity(found[name], within="faultset.baselines") for name in ("eadro", "untrained-eadro"))
    assert len({*two}) == 1, "both are in one module"
    assert len(own_digest()) == 12


def test_a_folder_is_known_by_its_content(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.yaml").write_text("name: shop")
    assert path_identity(tmp_path / "one") == path_identity(tmp_path / "two")
    (tmp_path / "two" / "operations.py").write_text("")
    assert path_identity(tmp_path / "one") != path_identity(tmp_path / "two")
    assert path_identity(tmp_path / "one" / "app.yaml") == path_identity(tmp_path / "two" / "app.yaml")
