"""A server on loopback that speaks S3, and its address and credentials in the environment."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from faultset.datasets.remote.file_systems import filesystem


@contextmanager
def s3_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of a place in a new bucket; skip the test where the server is not installed."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = {
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.startswith("AWS_") and name not in found]:
        monkeypatch.delenv(name)
    system, _ = filesystem("s3://shelf")
    type(system).clear_instance_cache()
    filesystem("s3://shelf")[0].mkdir(name := f"shelf-{uuid.uuid4().hex[:8]}")
    yield f"s3://{name}/data"
    type(system).clear_instance_cache()
    server.stop()
