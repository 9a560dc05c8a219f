"""What importers are made of is documented where `help` shows it."""

from __future__ import annotations

import pydoc
import re
from dataclasses import fields

import pytest

from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode


@pytest.mark.parametrize("kind", [Case, DataIssue, ForeignEpisode])
def test_help_describes_every_attribute(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    section = text.partition("Attributes\n |  ----------\n")[2]
    documented = {name for line in re.findall(r"^ \|  (\w[\w, ]*) : ", section, re.M) for name in line.split(", ")}
    assert {field.name for field in fields(kind)} <= documented
