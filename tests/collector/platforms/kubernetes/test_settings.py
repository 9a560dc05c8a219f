"""Which images a cluster needs, and what to do when they are missing."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from images import FIRST, add_builds, build_archive

from faultset.collector.faults.workloads import PAUSE_IMAGE
from faultset.collector.platforms.kubernetes.settings import (
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


def read_archive(data: bytes) -> Mapping[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: json.load(archive.extractfile(member) or io.BytesIO()) for member in archive}


MANIFEST = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:first", "size": 3},
    "layers": [{"digest": "sha256:layer", "size": 300_000_000}],
}
CONFIG = {"config": {"Env": ["PATH=/bin"], "Entrypoint": ["python3"]}, "rootfs": {"diff_ids": ["sha256:layer"]}}


def test_builds_of_a_test_cluster_share_all_layers_and_differ_in_one_variable() -> None:
    data = build_archive(MANIFEST, CONFIG, TAGS[1:])
    files = read_archive(data)
    assert len(data) < 200_000
    entries = files["index.json"]["manifests"]
    assert [entry["annotations"]["io.containerd.image.name"] for entry in entries] == [
        f"docker.io/faultset/app:{tag}" for tag in TAGS[1:]
    ]
    for tag, entry in zip(TAGS[1:], entries, strict=True):
        manifest = files[f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"]
        config = files[f"blobs/sha256/{manifest['config']['digest'].removeprefix('sha256:')}"]
        assert manifest["layers"] == MANIFEST["layers"]
        assert config["config"] == CONFIG["config"] | {"Env": ["PATH=/bin", f"FAULTSET_BUILD={tag}"]}
        assert config["rootfs"] == CONFIG["rootfs"]


def test_builds_are_added_to_the_first_one_in_one_import(tmp_path: Path) -> None:
    answers = {
        f"images list name==docker.io/faultset/app:{FIRST}": f"REF TYPE DIGEST\napp:{FIRST} type sha256:manifest\n",
        "content get sha256:manifest": json.dumps(MANIFEST),
        "content get sha256:first": json.dumps(CONFIG),
    }
    program = tmp_path / "store.py"
    program.write_text(
        f"import sys\nfrom pathlib import Path\nanswer = {answers!r}.get(' '.join(sys.argv[1:]))\n"
        f"print(answer) if answer else Path({str(tmp_path / 'imported')!r}).write_bytes(sys.stdin.buffer.read())\n"
    )
    add_builds([sys.executable, str(program)], ["1.0.2", "1.4.5"])
    assert len(read_archive((tmp_path / "imported").read_bytes())["index.json"]["manifests"]) == 2
    with pytest.raises(SystemExit, match="FAULTSET_IMAGE_STORE must hold"):
        add_builds([], ["1.0.2"])
