from __future__ import annotations

import logging
from importlib.metadata import EntryPoint

import pytest

from faultset.core import plugins
from faultset.core.errors import UsageError
from faultset.datasets.imports.contract import GROUP, find_formats, format_names, load_format


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    announced = list(plugins.entry_points(group=GROUP))
    point = EntryPoint(name="broken", value="no_such_module:Format", group=GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [*announced, point])


def test_every_built_in_format_is_announced_under_its_own_name() -> None:
    assert {"aiopslab", "nezha", "openrca", "petshop", "rcabench", "rcaeval"} <= {*format_names()}
    for name in format_names():
        assert load_format(name).name == name


@pytest.mark.usefixtures("broken")
def test_a_broken_format_is_one_sentence_and_leaves_the_others_usable(tmp_path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_formats(tmp_path) == []
    assert "no_such_module" in caplog.text
    assert load_format("rcaeval").name == "rcaeval"
    with pytest.raises(UsageError, match=r'plug-in "broken".*cannot be loaded'):
        load_format("broken")
