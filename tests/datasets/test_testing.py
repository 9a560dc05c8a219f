from __future__ import annotations

from pathlib import Path

import pytest

from faultset.core.plugins import plugins
from faultset.datasets.exports import exporter
from faultset.datasets.exports.exporter import GROUP
from faultset.datasets.testing import check_exporter


@pytest.mark.parametrize("name", plugins(GROUP))
def test_an_exporter_keeps_what_exporters_promise(name: str, example_root: Path) -> None:
    check_exporter(name, example_root)


class Careless:
    """Writes beside its folder."""

    def __init__(self, dataset, options, folder) -> None:
        self._folder = folder

    def unavailable_reason(self, episode: str) -> str | None:
        return None

    def write(self, episode: str) -> None:
        (self._folder / f"{episode}.txt").write_text(episode)

    def finish(self) -> None:
        (self._folder.parent / "index.txt").write_text("")


def test_an_exporter_that_writes_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "load_plugin", lambda *_, **__: Careless)
    with pytest.raises(AssertionError, match="outside"):
        check_exporter("careless")
