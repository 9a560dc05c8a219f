from __future__ import annotations

from types import ModuleType
from xml.etree import ElementTree

UPDATE = "run: python scripts/layout.py"


def test_the_picture_of_the_layout_is_that_of_the_sources(layout: ModuleType) -> None:
    picture = layout.layout_picture()
    assert layout.PICTURE.read_text("utf-8") == picture, UPDATE
    ElementTree.fromstring(picture)
