from __future__ import annotations

from types import ModuleType
from xml.etree import ElementTree

UPDATE = "run: python scripts/layout.py"


def test_the_picture_of_the_layout_is_that_of_the_sources(layout: ModuleType) -> None:
    assert layout.PICTURE.read_text("utf-8") == layout.layout_picture(), UPDATE
    ElementTree.fromstring(layout.layout_picture())
