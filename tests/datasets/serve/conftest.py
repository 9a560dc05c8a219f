from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from faultset.datasets.cli.serving import run_server
from faultset.datasets.serve.http_server import serving_app
from faultset.datasets.serve.telemetry import ServedClock, ServedTelemetry
from faultset.datasets.views import EpisodeView

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample" / "episodes" / "01084746c57a"
"""An episode of a minute: hotel, without a fault that stops a service."""


@pytest.fixture(scope="session")
def telemetry() -> ServedTelemetry:
    """The sample episode with the clock at its end."""
    view = EpisodeView(SAMPLE)
    return ServedTelemetry(view, ServedClock(view.context))


@pytest.fixture
def served_view() -> Callable[..., ServedTelemetry]:
    """Return the telemetry of an episode's folder; options are those of the clock."""

    def make(folder: Path, **options: Any) -> ServedTelemetry:
        view = EpisodeView(folder)
        return ServedTelemetry(view, ServedClock(view.context, **options))

    return make


@pytest.fixture(scope="session")
def served_address() -> Iterator[str]:
    """Serve the sample episode on loopback and return its address."""
    yield from _serve(lambda episode: _opened(SAMPLE), is_single=True)


@pytest.fixture
def served_dataset() -> Iterator[str]:
    """Serve the sample dataset on loopback, each episode at its id."""
    from faultset.datasets import open_dataset

    dataset = open_dataset(SAMPLE.parents[1])
    yield from _serve(lambda episode: _opened(dataset.path(episode)), is_single=False)


def _opened(folder: Path) -> tuple[EpisodeView, ServedClock]:
    view = EpisodeView(folder)
    return view, ServedClock(view.context)


def _serve(open_episode: Any, *, is_single: bool) -> Iterator[str]:
    addresses: list[str] = []
    started, loop = threading.Event(), asyncio.new_event_loop()

    def start(address: str) -> None:
        addresses.append(address)
        started.set()

    task = loop.create_task(run_server(serving_app(open_episode, is_single=is_single), None, start))

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(10)
    yield addresses[0]
    loop.call_soon_threadsafe(task.cancel)
    thread.join()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def fetch() -> Callable[..., tuple[int, Any]]:
    """Return status and document, or text, of a GET request; with `form`, of a POST request."""

    def get(address: str, form: dict[str, str] | None = None, **parameters: Any) -> tuple[int, Any]:
        data = None if form is None else urlencode(form).encode()
        query = f"?{urlencode(parameters, doseq=True)}" if parameters else ""
        try:
            with urlopen(address + query, data, timeout=10) as answer:
                status, body = answer.status, answer.read()
        except HTTPError as error:
            status, body = error.code, error.read()
            error.close()
        try:
            return status, json.loads(body)
        except ValueError:
            return status, body.decode()

    return get
