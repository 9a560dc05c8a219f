"""Volumes of pods as folders of the host."""

from __future__ import annotations

from faultset.collector.platforms.local.controllers.commands import Mount
from faultset.collector.platforms.local.node.volumes import Volumes


def test_mounts_become_folders_and_variables(tmp_path):
    volumes = Volumes(tmp_path)
    mounts = [
        Mount(path="/etc/faultset", files={"app.yaml": "name: shop"}),
        Mount(path="/data/db", volume="geo-pv"),
        Mount(path="/tmp/scratch", volume="pod/uid-1/scratch"),
    ]
    places = volumes.mount("geo-a", "geo-main", mounts)
    with open(places["FAULTSET_APP"], encoding="utf-8") as file:
        assert file.read() == "name: shop"
    (tmp_path / "volumes" / "geo-pv" / "kept").touch()
    again = volumes.mount("geo-b", "geo-main", mounts)
    assert [entry.name for entry in (tmp_path / "volumes" / "geo-pv").iterdir()] == ["kept"]
    assert again["FAULTSET_DATA"] != places["FAULTSET_DATA"]


def test_what_a_pod_shares_with_nobody_goes_with_it(tmp_path):
    volumes = Volumes(tmp_path)
    mounts = [Mount(path="/data/db", volume="geo-pv"), Mount(path="/cache", volume="pod/uid-1/cache")]
    volumes.mount("geo-a", "geo-main", mounts)
    volumes.forget("geo-a", "uid-1")
    assert not (tmp_path / "pods" / "geo-a").exists()
    assert not (tmp_path / "volumes" / "pod" / "uid-1").exists()
    assert (tmp_path / "volumes" / "geo-pv").is_dir()


def test_files_that_left_a_config_map_leave_the_mount(tmp_path):
    volumes = Volumes(tmp_path)
    volumes.mount("geo-a", "geo-main", [Mount(path="/etc/x", files={"a": "1", "b": "2"})])
    volumes.mount("geo-a", "geo-main", [Mount(path="/etc/x", files={"b": "3"})])
    folder = tmp_path / "pods" / "geo-a" / "geo-main" / "mounts" / "etc" / "x"
    assert {file.name: file.read_text() for file in folder.iterdir()} == {"b": "3"}
