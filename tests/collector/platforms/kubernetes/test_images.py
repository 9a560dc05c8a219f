"""Which images a cluster needs, and what to do when they are missing."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.faults.workloads import PAUSE_IMAGE
from faultset.collector.platforms.kubernetes.images import (
    app_image,
    explain_missing_images,
    find_absent_images,
    main,
    pause_image,
    required_images,
)
from faultset.collector.runtime.builds import TAGS


def node(*names: str, others: int = 0) -> dict[str, Any]:
    images = [{"names": [name], "sizeBytes": 1} for name in names]
    return {"status": {"images": images + [{"names": None}] * others}}


def test_every_build_and_the_pause_are_needed() -> None:
    images = required_images()
    assert set(images) == {*(f"faultset/app:{tag}" for tag in TAGS), PAUSE_IMAGE}
    assert len(images) == len(set(images))


def test_the_pause_stands_beside_the_application_in_every_repository() -> None:
    assert pause_image("registry.local:5000/team/app") == "registry.local:5000/team/pause:3.9"
    assert pause_image("app") == "pause:3.9"
    assert app_image("1.0.0", "registry.local:5000/team/app") == "registry.local:5000/team/app:1.0.0"


def test_images_that_some_node_lacks_are_absent() -> None:
    full, half = node("docker.io/faultset/app:1.0.0", "docker.io/faultset/pause:3.9"), node("faultset/app:1.0.0")
    wanted = ["faultset/app:1.0.0", "faultset/pause:3.9"]
    assert find_absent_images([full], wanted) == []
    assert find_absent_images([full, half], wanted) == ["faultset/pause:3.9"]


def test_a_node_that_does_not_show_all_its_images_proves_nothing() -> None:
    assert find_absent_images([node("faultset/app:1.0.0", others=49)], ["faultset/pause:3.9"]) == []


def test_the_sentence_says_what_to_build_and_how_to_load_it() -> None:
    said = explain_missing_images(["faultset/app:1.0.2", "faultset/app:1.0.0", "faultset/pause:3.9"])
    assert "scripts/build-image.sh 1.0.0 1.0.2`" in said
    assert "kind load docker-image faultset/app:1.0.2 faultset/app:1.0.0 faultset/pause:3.9`" in said
    assert "minikube image load" in said


def test_the_sentence_names_the_users_repository_and_few_images() -> None:
    said = explain_missing_images(required_images("registry.local:5000/team/app"))
    assert "--repository registry.local:5000/team/app" in said
    assert f"and {len(required_images()) - 3} more" in said


def test_the_names_can_be_printed_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    main(["1.0.2"])
    assert capsys.readouterr().out == "faultset/app:1.0.2\nfaultset/pause:3.9\n"
    with pytest.raises(SystemExit):
        main(["9.9.9"])
    assert "unknown build 9.9.9" in capsys.readouterr().err
