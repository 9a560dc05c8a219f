"""Make the images of the application for a test cluster that installs wheels into a base image.

`python tests/collector/platforms/kubernetes/images.py all pause:3.9` loads all tags and the pause, and skips images
that the cluster has with the same content. The environment variable FAULTSET_IMAGE_LOADER holds the command that makes
and loads an image; it is called as `COMMAND NAME PIP-ARGUMENT...`. It is called once for all tags of the application,
which share their layers and differ in the variable FAULTSET_BUILD, as in the Containerfile. FAULTSET_IMAGE_STORE holds
the command of containerd's client on the node, which adds the other tags: `ctr --address ... --namespace k8s.io`.
Where the cluster's network has no package index, run this program once with `--download` outside of it.

`stores:1.0.0` is the image `faultset/stores:1.0.0`, which has this machine's memcached and PostgreSQL beside the
application, for tests of `--stores original`; the machine's system is that of the image then.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.runtime.builds import TAGS
from faultset.collector.runtime.stores.original_driver import find_program

ROOT = Path(__file__).parents[4]
REQUIREMENTS = ROOT / "image" / "requirements.txt"
STORE_REQUIREMENTS = ROOT / "image" / "requirements-stores.txt"
PAUSE_SCRIPT = ROOT / "image" / "pause.sh"
PROGRAMS = ("faultset-service", "faultset-store", "faultset-work")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "faultset-test-images"
LOADER = "FAULTSET_IMAGE_LOADER"
STORE = "FAULTSET_IMAGE_STORE"
FIRST = TAGS[0]
"""The build that the loader makes; the other builds are added to it."""
_PAUSE = "pause:"
_STORES = "stores:"
_WHEEL = b"Wheel-Version: 1.0\nGenerator: faultset\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_RUNS = re.compile(r"^faultset/(collector/(agent|apps|load|runtime|spec)/|datasets/errors)|/scripts/|entry_points")
"""What of the application's wheel runs in containers; a change elsewhere makes no new image necessary."""


def image_name(tag: str) -> str:
    """Return the image for `1.0.0`, `stores:1.0.0` or `pause:3.9`."""
    return f"faultset/{tag}" if ":" in tag else f"faultset/app:{tag}"


def load_images(*tags: str) -> list[str]:
    """Load the images of the tags; return the names of those that were missing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cluster, present = _cluster(), _present()
        record = CACHE / "loaded.json"
        contents = json.loads(record.read_text()) if record.exists() else {}
        with tempfile.TemporaryDirectory() as folder:
            wheel = application_wheel(Path(folder)) if any(not tag.startswith(_PAUSE) for tag in tags) else None
            arguments = {tag: _arguments(tag, wheel, Path(folder)) for tag in _with_first(tags)}
            current = {tag: _content(words) for tag, words in arguments.items()}
            missing = [
                tag
                for tag, content in current.items()
                if contents.get(f"{cluster} {image_name(tag)}") != content
                or (present is not None and image_name(tag) not in present)
            ]
            for tag in missing:
                if tag == FIRST or tag not in TAGS:
                    subprocess.run([*shlex.split(os.environ[LOADER]), image_name(tag), *arguments[tag]], check=True)
        add_builds(shlex.split(os.environ.get(STORE, "")), [tag for tag in missing if tag in TAGS and tag != FIRST])
        contents |= {f"{cluster} {image_name(tag)}": current[tag] for tag in missing}
        record.write_text(json.dumps(contents, indent=1))
    return [image_name(tag) for tag in missing]


def _with_first(tags: Iterable[str]) -> list[str]:
    """Return the tags in order, with the first build if there are others."""
    first = [FIRST] if any(tag in TAGS for tag in tags) else []
    return list(dict.fromkeys([*first, *tags]))


def add_builds(store: Sequence[str], tags: Sequence[str]) -> None:
    """Add images that have the layers of the first build and another FAULTSET_BUILD."""
    if not tags:
        return
    if not store:
        raise SystemExit(f"{STORE} must hold the command of containerd's client on the node; it adds {tags[0]}")
    name = f"docker.io/{image_name(FIRST)}"
    listed = _output(*store, "images", "list", f"name=={name}").splitlines()[1].split()
    manifest = json.loads(_output(*store, "content", "get", listed[2]))
    config = json.loads(_output(*store, "content", "get", manifest["config"]["digest"]))
    archive = build_archive(manifest, config, tags)
    subprocess.run([*store, "images", "import", "-"], input=archive, check=True, stdout=subprocess.DEVNULL)


def build_archive(manifest: dict[str, Any], config: dict[str, Any], tags: Iterable[str]) -> bytes:
    """Return an OCI archive of one image for each tag, without the layers, which the store has."""
    blobs: dict[str, bytes] = {}

    def add(document: Any) -> dict[str, Any]:
        data = json.dumps(document).encode()
        blobs[f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"] = data
        return {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}

    entries = []
    for tag in tags:
        variables = [*config["config"].get("Env", ()), f"FAULTSET_BUILD={tag}"]
        image = add({**config, "config": {**config["config"], "Env": variables}})
        entry = add({**manifest, "config": {**manifest["config"], **image}})
        names = {"io.containerd.image.name": f"docker.io/{image_name(tag)}", "org.opencontainers.image.ref.name": tag}
        entries.append({"mediaType": manifest["mediaType"], **entry, "annotations": names})
    files = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": entries}).encode(),
        **blobs,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _arguments(tag: str, wheel: Path | None, folder: Path) -> list[str]:
    name, _, version = tag.rpartition(":")
    if name == _PAUSE.rstrip(":"):
        scripts = {program: PAUSE_SCRIPT.read_bytes() for program in PROGRAMS}
        return ["--no-deps", "--no-index", str(tiny_wheel("faultset-pause", version, folder, scripts))]
    build = tiny_wheel("faultset-build", version, folder)
    wheels = [*sorted(required_wheels().glob("*.whl")), wheel, build]
    if name:
        wheels += [*sorted(required_wheels(STORE_REQUIREMENTS).glob("*.whl")), servers_wheel(folder)]
    return ["--no-deps", "--no-index", *map(str, wheels)]


def _content(arguments: Sequence[str]) -> str:
    found = hashlib.sha256()
    for argument in arguments:
        path = Path(argument)
        found.update(path.name.encode())
        if path.suffix == ".whl" and not path.is_relative_to(CACHE):
            with zipfile.ZipFile(path) as archive:
                for entry in sorted(archive.infolist(), key=lambda one: one.filename):
                    if _RUNS.search(entry.filename):
                        found.update(entry.filename.encode() + archive.read(entry))
                    elif entry.filename.startswith(_PACKAGE):
                        found.update(f"{entry.filename} {entry.external_attr} {entry.CRC}".encode())
    return found.hexdigest()


def application_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    command = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True)
    return next(folder.glob("faultset-0*.whl"))


def required_wheels(requirements: Path = REQUIREMENTS) -> Path:
    """Return the folder with the wheels that a file of requirements asks for, downloaded once."""
    folder = CACHE / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as draft:
            command = ["download", "--quiet", "--only-binary=:all:", "--python-version", "3.11", "--dest", draft]
            subprocess.run([sys.executable, "-m", "pip", *command, "--requirement", str(requirements)], check=True)
            shutil.copytree(draft, folder)
    return folder


def servers_wheel(folder: Path) -> Path:
    """Write a wheel that has this machine's memcached and PostgreSQL, with the libraries that they are linked to."""
    programs = {name: find_program(name) for name in ("memcached", "postgres", "initdb")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} must be installed for this image; install memcached and postgresql")
    found = {name: Path(str(path)).resolve() for name, path in programs.items()}
    version_bin = found["postgres"].parent
    version = version_bin.parent.name
    share = Path("/usr/share/postgresql") / version
    data: dict[str, Path | bytes] = {f"lib/servers/{path.name}": path for path in _libraries(found.values())}
    for name, path in found.items():
        home = "lib/servers/bin" if name == "memcached" else f"lib/postgresql/{version}/bin"
        data[f"{home}/{name}.program"] = path
        data[f"{home}/{name}"] = _WITH_LIBRARIES.format(
            libraries=f"{_PREFIX}/lib/servers", real=f"{_PREFIX}/{home}/{name}.program"
        ).encode()
    for name in ("plpgsql.so", "dict_snowball.so"):
        data[f"lib/postgresql/{version}/lib/{name}"] = version_bin.parent / "lib" / name
    data |= {
        f"share/postgresql/{version}/{path.relative_to(share)}": path for path in share.rglob("*") if path.is_file()
    }
    scripts = {
        name: f'#!/bin/sh\nexec {_PREFIX}/{next(f for f in data if f.endswith(f"/{name}"))} "$@"\n'.encode()
        for name in found
    }
    return tiny_wheel("faultset-servers", version, folder, scripts, data)


_PACKAGE = "faultset_servers"
_PREFIX = f"/opt/venv/lib/python3.11/site-packages/{_PACKAGE}"
_WITH_LIBRARIES = """#!/bin/bash
export LD_LIBRARY_PATH={libraries}
exec -a "$0" {real} "$@"
"""
"""Starts a program with the libraries beside it; PostgreSQL finds its files by the name under which it was started."""
_OF_EVERY_SYSTEM = re.compile(r"^(linux-vdso|ld-linux|libc\.|libm\.|libresolv|libpthread|libdl)")


def _libraries(programs: Iterable[Path]) -> set[Path]:
    lines = [
        line.split()
        for program in programs
        for line in subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.splitlines()
    ]
    return {Path(line[2]) for line in lines if len(line) > 2 and not _OF_EVERY_SYSTEM.match(line[0])}


def tiny_wheel(
    name: str,
    version: str,
    folder: Path,
    scripts: dict[str, bytes] | None = None,
    placed: dict[str, Path | bytes] | None = None,
) -> Path:
    """Write a wheel that consists of its name, its version, some scripts, and files of a package."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    files = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{stem}.dist-info/WHEEL": _WHEEL,
        **{f"{stem}.data/scripts/{script}": text for script, text in (scripts or {}).items()},
        **{
            f"{_PACKAGE}/{name}": content if isinstance(content, bytes) else content.read_bytes()
            for name, content in (placed or {}).items()
        },
    }
    record = f"{stem}.dist-info/RECORD"
    rows = [f"{file},sha256={_digest(data)},{len(data)}\n" for file, data in files.items()]
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in {**files, record: ("".join(rows) + f"{record},,\n").encode()}.items():
            entry = zipfile.ZipInfo(file)
            mode = 0o755 if "/scripts/" in file or "/bin/" in file else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _cluster() -> str:
    return _kubectl("get", "namespace", "kube-system", "--output", "jsonpath={.metadata.uid}")


def _present() -> frozenset[str] | None:
    """Return the images that the node reports, or None if it reports only some of them."""
    node = json.loads(_kubectl("get", "nodes", "--output", "json"))["items"][0]
    images = node["status"]["images"]
    names = {name.removeprefix("docker.io/") for image in images for name in image.get("names") or ()}
    return None if len(images) >= 50 else frozenset(names)


def _kubectl(*words: str) -> str:
    return _output("kubectl", *words)


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    started = time.monotonic()
    if "--download" in sys.argv:
        required_wheels()
        required_wheels(STORE_REQUIREMENTS)
    else:
        requested = [tag for word in sys.argv[1:] for tag in (TAGS if word == "all" else [word])]
        names = load_images(*requested)
        print(f"loaded {', '.join(names) or 'nothing: all were there'} in {time.monotonic() - started:.1f} s")
