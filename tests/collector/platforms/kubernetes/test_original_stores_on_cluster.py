"""Original stores on a real cluster: their faults show as they do on the embedded platform, with the same servers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import images
import pytest
from cluster_campaigns import COLLECT, SHORT
from store_symptoms import symptoms

from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.host import KubernetesHost
from faultset.collector.platforms.local.host import LocalHost
from faultset.core.errors import PlatformError
from faultset.datasets.format.labels import read_label

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

REPOSITORY = "faultset/stores"
CASES = (
    ("hotel", "connection-limit", "memcached-profile"),
    ("astronomy", "revoke-auth", "postgresql"),
    ("astronomy", "volume-full", "postgresql"),
    ("astronomy", "locked-store", "postgresql"),
)


@pytest.fixture
def loaded(api: Api) -> None:
    if images.LOADER in os.environ:
        images.load_images("stores:1.0.0", "1.0.0", "pause:3.9")


@pytest.mark.parametrize(("app", "fault", "target"), CASES)
def test_a_fault_of_an_original_store_shows_on_a_cluster_as_on_the_embedded_platform(
    app: str, fault: str, target: str, loaded: None, tmp_path: Path
) -> None:
    here = symptoms(app, fault, target, "original", tmp_path / "here", LocalHost(), "kubernetes")
    there = symptoms(app, fault, target, "original", tmp_path / "there", KubernetesHost(image=REPOSITORY), "kubernetes")
    assert here.confirmed
    assert there == here


def test_the_image_says_which_servers_it_has_and_one_without_them_is_refused(loaded: None) -> None:
    drivers = ["original-memcached", "original-postgresql"]
    found = KubernetesHost(image=REPOSITORY).original_servers(drivers)
    assert found["original-memcached"].startswith("memcached 1.")
    assert found["original-postgresql"].startswith("postgres ")
    with pytest.raises(PlatformError, match=r"faultset/app:1\.0\.0 does not contain .*build-image.sh --stores"):
        KubernetesHost().original_servers(drivers)


def test_an_episode_tells_which_servers_it_ran(loaded: None, tmp_path: Path) -> None:
    options = ["--faults", "revoke-auth", "--targets", "postgresql", "--apps", "astronomy", "--normal", "0", "-j", "1"]
    options += [*SHORT, "--stores", "original", "--image", REPOSITORY, "--out", str(tmp_path / "data")]
    run = subprocess.run([*COLLECT, *options, "--faulty", "30s"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    (path,) = (tmp_path / "data" / "episodes").iterdir()
    assert read_label(path).fault == "revoke-auth"
    assert json.loads((path / "context.json").read_text())["stores"]["postgresql"].startswith("postgres ")
