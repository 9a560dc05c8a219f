"""The runtime knows no application in particular."""

from __future__ import annotations

import re
from pathlib import Path

from faultset.collector import runtime

SOURCES = sorted(Path(path) for folder in runtime.__path__ for path in Path(folder).rglob("*.py"))
WORDS = re.compile(
    r"hotel|night|booking|availability|nearby|consul\b|zerolog|\.go\b|\bgeo\b|jaeger|reservation|panic: ",
    re.IGNORECASE,
)


def test_no_module_names_what_belongs_to_one_application() -> None:
    assert SOURCES
    found = {str(path): WORDS.findall(path.read_text()) for path in SOURCES}
    assert not {name: words for name, words in found.items() if words}
