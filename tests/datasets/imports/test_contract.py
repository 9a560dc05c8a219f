"""The documented contract of importers, their registry, and text as numbers."""

from __future__ import annotations

import logging
import pydoc
import re
from dataclasses import fields
from importlib.metadata import EntryPoint

import numpy as np
import pandas as pd
import pytest

from faultset.core import plugins
from faultset.core.errors import UsageError
from faultset.datasets.imports.columns import parse_numbers
from faultset.datasets.imports.contract import (
    GROUP,
    Case,
    DataIssue,
    ForeignEpisode,
    find_formats,
    format_names,
    load_format,
)


@pytest.mark.parametrize("kind", [Case, DataIssue, ForeignEpisode])
def test_help_describes_every_attribute(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    section = text.partition("Attributes\n |  ----------\n")[2]
    documented = {name for line in re.findall(r"^ \|  (\w[\w, ]*) : ", section, re.M) for name in line.split(", ")}
    assert {field.name for field in fields(kind)} <= documented


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


def test_every_double_that_is_written_out_is_read_back_to_the_last_bit() -> None:
    values = np.random.default_rng(0).lognormal(0, 20, 20_000)
    assert (parse_numbers(pd.Series([repr(value) for value in values.tolist()])) == values).all()


@pytest.mark.parametrize("text", ["", "n/a", "1_0", "0x1F", "1e", ".", "1.2.3", "nan", None, "1,5"])
def test_what_is_no_number_is_missing(text: str | None) -> None:
    assert np.isnan(parse_numbers(pd.Series(["1.5", text]))[1])


@pytest.mark.parametrize("text", ["+3.", "-.5", " 12 ", "1E5", "2e-3", "inf", "-Infinity"])
def test_the_usual_ways_to_write_a_number_are_read(text: str) -> None:
    assert parse_numbers(pd.Series([text])).tolist() == [float(text)]


def test_numbers_are_taken_as_they_are() -> None:
    assert parse_numbers(pd.Series([1, 2])).tolist() == [1.0, 2.0]
