from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.monitoring.servers import Selection
from faultset.collector.monitoring.spool import Spool
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, Parameters
from faultset.core.errors import PlatformError
from faultset.datasets.serve.http_server import EpisodeApis
from faultset.datasets.serve.telemetry import ServedClock, ServedTelemetry
from faultset.datasets.views import EpisodeView
from tests.collector.platforms.kubernetes.conftest import serve as serve

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample" / "episodes" / "01084746c57a"


class EpisodeEndpoint(Endpoint):
    """Answers as the servers of a recorded episode would, and counts the requests."""

    name = "the episode"

    def __init__(self, apis: EpisodeApis) -> None:
        self._apis = apis
        self.requests: list[str] = []
        self.before_answer: Callable[[str], None] = lambda path: None

    def body(self, path: str, params: Parameters | None = None) -> bytes:
        self.requests.append(path)
        self.before_answer(path)
        lists = {name: [value] if isinstance(value, str) else [*value] for name, value in (params or {}).items()}
        status, document = self._apis.answer(path.removeprefix("/"), lists)
        if status != 200:
            raise PlatformError(f"{self.name} answered {status} to {path}: {document}")
        return json.dumps(document).encode()


@pytest.fixture(scope="session")
def sample_view() -> EpisodeView:
    """A recorded minute of the hotel."""
    return EpisodeView(SAMPLE)


@pytest.fixture(scope="session")
def _sample_apis(sample_view: EpisodeView) -> EpisodeApis:
    return EpisodeApis(ServedTelemetry(sample_view, ServedClock(sample_view.context)))


@pytest.fixture
def endpoint(_sample_apis: EpisodeApis) -> EpisodeEndpoint:
    """The servers of the recorded minute."""
    return EpisodeEndpoint(_sample_apis)


@pytest.fixture
def selection(sample_view: EpisodeView) -> Selection:
    """The whole minute, and the namespace of the application."""
    start_ns, end_ns = sample_view.window
    return Selection(start_ns=start_ns, end_ns=end_ns, namespace="hotel")


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """An empty spool."""
    return Spool(tmp_path / "answers", {"request": 1})


@pytest.fixture
def read_answers() -> Callable[[Spool, str], list[Any]]:
    """Return the answers in a folder of a spool."""
    import gzip

    def read(spool: Spool, folder: str) -> list[Any]:
        files = sorted((spool.folder / folder).glob("*.json.gz"))
        return [json.loads(gzip.decompress(file.read_bytes())) for file in files]

    return read
