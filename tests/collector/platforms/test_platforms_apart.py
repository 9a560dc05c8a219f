"""The platforms are independent: what both need is outside both."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import faultset.collector.platforms as package

PLATFORMS = ("local", "kubernetes")
ROOT = Path(package.__file__).parent
SHARED = [path for folder in (ROOT, ROOT / "cluster", ROOT.parent / "sources") for path in folder.glob("*.py")]


def imported_when_loaded(path: Path) -> set[str]:
    """Return the modules that a file imports at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def of_platform(names: set[str], platform: str) -> set[str]:
    return {name for name in names if name.startswith(f"{package.__name__}.{platform}.")}


@pytest.mark.parametrize(("platform", "other"), [PLATFORMS, PLATFORMS[::-1]])
def test_no_platform_imports_another(platform: str, other: str) -> None:
    files = sorted((ROOT / platform).rglob("*.py"))
    assert any(of_platform(imported_when_loaded(path), platform) for path in files)
    wrong = {path.name: found for path in files if (found := of_platform(imported_when_loaded(path), other))}
    assert not wrong


def test_what_platforms_share_imports_none_of_them() -> None:
    assert len({path.parent for path in SHARED}) == 3
    imports = {str(path.relative_to(ROOT.parent)): imported_when_loaded(path) for path in SHARED}
    wrong = {name: [of_platform(used, platform) for platform in PLATFORMS] for name, used in imports.items()}
    assert not {name: found for name, found in wrong.items() if any(found)}
