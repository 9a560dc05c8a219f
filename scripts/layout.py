"""Draw the layout of the sources from the folders and their imports: `python scripts/layout.py` writes the SVG."""

from __future__ import annotations

import ast
import textwrap
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "layout.svg"
SLICES = {
    "collector": ROOT / "collector/faultset/collector",
    "evaluators": ROOT / "evaluators/faultset/evaluators",
    "agents": ROOT / "evaluators/faultset/agents",
    "baselines": ROOT / "baselines/faultset/baselines",
    "datasets": ROOT / "datasets/faultset/datasets",
    "core": ROOT / "datasets/faultset/core",
}

LINE, PAD, HEAD, GAP = 17, 10, 46, 44
LEFT, RIGHT, WIDE = (20, 500), (540, 440), (20, 960)
CHARACTERS = {500: 78, 440: 68, 380: 61, 400: 65, 960: 150}
"""Characters of a line in a box of that width."""


def subpackages(folder: Path) -> list[Path]:
    """Return the packages directly inside a folder."""
    return sorted(path.parent for path in folder.glob("*/__init__.py"))


def imported_slices(name: str) -> set[str]:
    """Return the other slices that the modules of a slice import."""
    names = set()
    for path in SLICES[name].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            parts = [module.split(".") for module in modules]
            names |= {words[1] for words in parts if words[0] == "faultset" and len(words) > 1}
    return names & set(SLICES) - {name}


def _lines(folder: Path, width: int) -> list[tuple[str, str]]:
    """Return the lines of a slice's box: a package, and the packages inside it."""
    lines = []
    for package in subpackages(folder):
        room = CHARACTERS[width] - len(package.name) - 3
        first, *more = textwrap.wrap(" · ".join(path.name for path in subpackages(package)), room) or [""]
        lines += [(package.name, first), *(("", inner) for inner in more)]
    return lines


def _box(name: str, column: tuple[int, int], top: int, height: int, note: str = "") -> list[str]:
    left, width = column
    parts = [
        f'<rect class="box" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>',
        f'<text class="title" x="{left + PAD}" y="{top + 20}">faultset.{name}</text>',
    ]
    if note:
        parts.append(f'<text class="note" x="{left + width - PAD}" y="{top + 20}" text-anchor="end">{note}</text>')
    for number, (package, inner) in enumerate(_lines(SLICES[name], width)):
        y = top + HEAD + number * LINE
        inside = f'<tspan class="inner" dx="10">{escape(inner)}</tspan>' if inner else ""
        parts.append(f'<text class="package" x="{left + PAD}" y="{y}">{escape(package)}{inside}</text>')
    return parts


def _height(name: str, column: tuple[int, int]) -> int:
    lines = len(_lines(SLICES[name], column[1]))
    return HEAD + LINE * lines - (6 if lines else 14)


def _arrow(x: int, top: int, bottom: int) -> str:
    return f'<line class="arrow" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" marker-end="url(#head)"/>'


def layout_picture() -> str:
    """Return the picture as SVG: a box for each slice, and arrows to the slices that it imports."""
    imports = {name: imported_slices(name) for name in SLICES}
    by_all = all("core" in imports[name] for name in SLICES if name != "core")
    drawn = {
        ("collector", "datasets"),
        ("evaluators", "baselines"),
        ("baselines", "datasets"),
        ("evaluators", "datasets"),
        ("evaluators", "agents"),
        ("agents", "datasets"),
    }
    arrows = {(name, other) for name in imports for other in imports[name] if other != "core"}
    if arrows != drawn or not by_all:
        raise ValueError(f"the picture draws {sorted(drawn)}, but the imports are {sorted(arrows)}")
    narrow = RIGHT[1] - 60
    agents_column, baselines_column = (RIGHT[0], narrow), (RIGHT[0] + 22, narrow + 20)
    evaluators, agents = _height("evaluators", RIGHT), _height("agents", agents_column)
    agents_top = 20 + evaluators + GAP
    baselines_top = agents_top + agents + GAP
    row = max(_height("collector", LEFT), evaluators + GAP + agents + GAP + _height("baselines", baselines_column))
    datasets_top = 20 + row + GAP
    core_top = datasets_top + _height("datasets", WIDE) + GAP // 2
    bottom = core_top + _height("core", WIDE) + 20
    middle = LEFT[0] + LEFT[1] // 2, RIGHT[0] + RIGHT[1] // 2
    baselines_height = 20 + row - baselines_top
    parts = [
        *_box("collector", LEFT, 20, row),
        *_box("evaluators", RIGHT, 20, evaluators),
        *_box("agents", agents_column, agents_top, agents),
        *_box("baselines", baselines_column, baselines_top, baselines_height),
        *_box("datasets", WIDE, datasets_top, _height("datasets", WIDE)),
        *_box("core", WIDE, core_top, _height("core", WIDE), "imported by all"),
        _arrow(middle[0], 20 + row, datasets_top),
        _arrow(middle[1] - 30, 20 + evaluators, agents_top),
        _arrow(RIGHT[0] + narrow + 15, 20 + evaluators, baselines_top),
        _arrow(RIGHT[0] + 11, agents_top + agents, datasets_top),
        _arrow(middle[1], 20 + row, datasets_top),
        _arrow(RIGHT[0] + RIGHT[1] - 14, 20 + evaluators, datasets_top),
    ]
    style = (
        ".box{fill:#f6f8fa;stroke:#57606a}.title{font:bold 15px sans-serif;fill:#0a3069}"
        ".package{font:13px sans-serif;fill:#1f2328}.inner{font:12px sans-serif;fill:#59636e}"
        ".note{font:italic 13px sans-serif;fill:#59636e}.arrow{stroke:#57606a;stroke-width:1.5}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {bottom}" width="1000" height="{bottom}">',
            "<title>Packages of faultset; an arrow points from a package to what it imports</title>",
            f"<style>{style}</style>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0,0L10,5L0,10z" fill="#57606a"/></marker></defs>',
            f'<rect width="1000" height="{bottom}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(layout_picture(), "utf-8")
