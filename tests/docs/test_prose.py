"""The prose check finds phrases and placeholder names, and fails above its limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "prose.py"
BAD = (
    '"""What nobody asked for."""\n\n# it is no file, so that it is left\nfound = 1\nfor one, place in ():\n    pass\n'
)
GOOD = '"""Return the pods that are ready."""\n\n# a pod is ready if its probe passes\npods = [1]\n'


def check(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_phrases_and_placeholder_names_are_reported_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "bad.md").write_text("Some text\n\n```\nit is no file\n```\n\nThe cache is no file.\n")
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr
    for line in ("bad.py:1: clause as a noun", "bad.py:3: negated noun", "bad.py:4: name `found`", "bad.md:7: negated"):
        assert line in done.stdout
    assert " and 3 placeholder names in 13 lines: " in done.stdout


@pytest.mark.parametrize(
    ("text", "limits", "code"),
    [
        (BAD, ["--max-phrases", 1000, "--max-names", 1000], 0),
        (BAD, ["--max-phrases", 100], 1),
        (BAD, ["--max-names", 100], 1),
        (GOOD, ["--max-phrases", 0, "--max-names", 0], 0),
    ],
)
def test_a_limit_per_thousand_lines_decides_the_exit_code(
    text: str, limits: list[object], code: int, tmp_path: Path
) -> None:
    (tmp_path / "module.py").write_text(text)
    assert check(tmp_path, *limits).returncode == code
