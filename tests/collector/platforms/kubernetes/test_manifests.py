"""Manifests of an application on a cluster."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from object_server import ObjectServer

from faultset.collector.apps import load_app
from faultset.collector.apps.tidb.operator import stateful_set
from faultset.collector.faults.operator import has_field
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.manifests import (
    adapt_manifests,
    component_volumes,
    lacks_storage_class,
    resolve_image,
)
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.collector.runtime.builds import TAGS, installed_build
from faultset.collector.runtime.environment import environment
from faultset.collector.spec.manifests import manifests
from faultset.datasets.telemetry_formats.kubernetes_objects import quantity

HOTEL = load_app("hotel")


def test_programs_run_as_an_ordinary_user_but_for_databases_which_own_their_volume() -> None:
    made = adapt_manifests(
        manifests(HOTEL, telemetry_endpoint="http://t"), HOTEL, "hotel-1", repository="r.example/faultset/app"
    )
    pods = {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in made if d["kind"] == "Deployment"}
    as_root = {name for name, spec in pods.items() if "securityContext" not in spec}
    assert as_root == {name for name, service in HOTEL.services.items() if service.claim}
    assert {spec["containers"][0]["image"] for spec in pods.values()} == {"r.example/faultset/app:1.0.0"}


def test_images_of_ours_come_from_the_users_repository_and_others_stay() -> None:
    assert resolve_image("faultset/app:1.0.2", "r.example/x/app") == "r.example/x/app:1.0.2"
    assert resolve_image("faultset/pause:3.9", "r.example/x/app") == "r.example/x/pause:3.9"
    assert resolve_image("nginx:1", "r.example/x/app") == "nginx:1"


TIDB, HOTEL_APP = load_app("tidb"), load_app("hotel")
COMPONENTS = ("pd", "tikv", "tidb")


def objects(*, own_volumes: bool) -> dict[tuple[str, str], dict[str, Any]]:
    wanted = manifests(TIDB, telemetry_endpoint="http://t")
    made = adapt_manifests(wanted, TIDB, "tidb-1", repository="r.example/faultset/app", own_volumes=own_volumes)
    return {(one["kind"], one["metadata"]["name"]): one for one in made}


def workload(component: str, *, own_volumes: bool = False) -> dict[str, Any]:
    """Return the StatefulSet that the operator creates for the custom resource."""
    return stateful_set(TIDB, objects(own_volumes=own_volumes)["TidbCluster", "basic"], component, "http://t")


def test_the_pods_of_all_components_fit_on_a_small_node() -> None:
    used = {"cpu": 0.0, "memory": 0.0}
    for component in COMPONENTS:
        spec = workload(component)["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == TIDB.services[component].resources()["limits"]
        for key in used:
            used[key] += spec["replicas"] * quantity(container["resources"]["requests"][key])
    assert used["cpu"] < 0.31
    assert used["memory"] <= 512 * 2**20


def test_pods_come_from_the_users_repository_and_know_their_namespace() -> None:
    (container,) = workload("tikv")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "r.example/faultset/app:1.0.0"
    assert [one["name"] for one in container["env"]].count("POD_NAMESPACE") == 1


def test_pods_run_as_an_ordinary_user_without_a_token_and_a_fault_of_the_user_still_shows() -> None:
    pod = workload("tikv")["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsUser"], pod["automountServiceAccountToken"]) == (1000, False)
    resource = objects(own_volumes=False)["TidbCluster", "basic"]
    platform: Any = SimpleNamespace(app=TIDB, get=lambda kind, name: resource)
    wanted = {"podSecurityContext": {"runAsUser": -1}}
    assert not has_field(platform, "tikv", wanted)
    resource["spec"]["tikv"]["podSecurityContext"]["runAsUser"] = -1
    assert has_field(platform, "tikv", wanted)


def test_a_component_without_volumes_has_room_for_a_few_pods_more_on_all_nodes_together() -> None:
    (room,) = workload("tidb")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert (room["maxSkew"], room["topologyKey"], room["whenUnsatisfiable"]) == (5, "kubernetes.io/os", "DoNotSchedule")
    assert room["minDomains"] > 2, "so that an empty place counts as the least filled one"
    assert room["labelSelector"]["matchLabels"] == workload("tidb")["spec"]["selector"]["matchLabels"]
    assert "topologySpreadConstraints" not in workload("tikv")["spec"]["template"]["spec"]


def test_claims_are_bound_to_volumes_of_ours_where_the_cluster_makes_none() -> None:
    store = Objects(None, "tidb-1", own_volumes=True)  # type: ignore[arg-type]
    volumes = [
        store.to_stored(one)
        for one in adapt_manifests(component_volumes(TIDB), TIDB, "tidb-1", repository="faultset/app")
    ]
    for component in ("pd", "tikv"):
        stateful = workload(component, own_volumes=True)["spec"]
        (claim,) = stateful["volumeClaimTemplates"]
        bound = [one for one in volumes if one["spec"]["storageClassName"] == claim["spec"]["storageClassName"]]
        assert len(bound) == 2 * stateful["replicas"], "each can be replaced once"
        assert {one["spec"]["capacity"]["storage"] for one in bound} == {
            claim["spec"]["resources"]["requests"]["storage"]
        }
        assert all(one["spec"]["hostPath"]["path"].startswith("/var/lib/faultset/tidb-1/") for one in bound)
    assert "storageClassName" not in workload("pd")["spec"]["volumeClaimTemplates"][0]["spec"]


@pytest.mark.parametrize(("default", "lacks"), [("true", False), ("false", True), (None, True)])
def test_volumes_of_ours_are_needed_without_a_default_storage_class(
    default: str | None, lacks: bool, object_server: ObjectServer, connect: Callable[..., Api]
) -> None:
    marks = {} if default is None else {"storageclass.kubernetes.io/is-default-class": default}
    object_server.put("storageclasses", {"metadata": {"name": "standard", "annotations": marks}})
    api = connect(object_server)
    assert lacks_storage_class(api, TIDB) is lacks
    assert not lacks_storage_class(api, HOTEL_APP)
    assert not lacks_storage_class(api, load_app("tidb-pingcap"))


def test_the_operators_pod_has_the_account_that_its_role_is_bound_to() -> None:
    made = objects(own_volumes=False)
    assert not [kind for kind, _ in made if kind == "CustomResourceDefinition"]
    pod = made["Deployment", "tidb-operator"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"]
    assert [one["name"] for one in pod["containers"][0]["env"]].count("POD_NAMESPACE") == 1
    binding = made["RoleBinding", "tidb-operator"]
    subject = {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": "tidb-1"}
    assert binding["subjects"] == [subject]
    assert binding["roleRef"]["name"] == made["Role", "tidb-operator"]["metadata"]["name"]
    assert not made["Deployment", "tikv-engine"]["spec"]["template"]["spec"]["automountServiceAccountToken"]


ROOT = Path(__file__).parents[4]
COLLECTOR = ROOT / "collector" / "faultset" / "collector"
ENTRIES = (
    "faultset.collector.runtime.service",
    "faultset.collector.runtime.stores.server",
    "faultset.collector.runtime.processes",
    "faultset.collector.load.__main__",
    "faultset.collector.apps.hotel.operations",
    "faultset.collector.apps.hotel.persona",
    "faultset.collector.apps.tidb.operations",
    "faultset.collector.apps.tidb.persona",
    "faultset.collector.agent.program",
)
OF_ORIGINALS = {COLLECTOR / "runtime" / "stores" / f"{name}.py" for name in ("postgresql", "postgresql_client")}
"""Imported with all stores, but used only where original servers run; their client libraries are an extra."""
BACKPORTS = {"async-timeout"}
"""What libraries need on the image's Python only."""

ALONE = """
import importlib, importlib.metadata, re, sys
allowed, entries = set(sys.argv[1].split(",")), sys.argv[2].split(",")
owners = importlib.metadata.packages_distributions()
own = {re.sub("[-_.]+", "-", name).lower() for name in ("faultset", "setuptools", "pip")}
class Only:
    def find_spec(self, name, path=None, target=None):
        found = {re.sub("[-_.]+", "-", one).lower() for one in owners.get(name.partition(".")[0], ())}
        if found and not found & (allowed | own):
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)
sys.meta_path.insert(0, Only())
for entry in entries:
    importlib.import_module(entry)
for name, module in sorted(sys.modules.items()):
    if name.startswith("faultset") and getattr(module, "__file__", None):
        print(module.__file__)
"""


def _is_of_originals(file: Path) -> bool:
    return file in OF_ORIGINALS


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def _requirements() -> dict[str, str]:
    lines = (ROOT / "image" / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    return {_normal(re.split("[<>=!;[ ]", line)[0]): line for line in wanted}


def _closure(names: set[str]) -> set[str]:
    """Return distributions and their dependencies, without extras."""
    found, todo = set(), set(names)
    while todo:
        name = todo.pop()
        found.add(name)
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            assert name in BACKPORTS, name
            continue
        plain = {_normal(re.split("[<>=!~;[( ]", one)[0]) for one in needed if "extra ==" not in one}
        todo |= {one for one in plain if _is_installed(one)} - found
    return found


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _imports(files: Iterable[Path]) -> set[str]:
    """Return the top-level names that modules import, wherever in the file; types only are left out."""
    found: set[str] = set()
    for file in files:
        tree = ast.parse(file.read_text())
        guarded = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in set(ast.walk(tree)) - guarded:
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"faultset"}


def _start(allowed: set[str]) -> subprocess.CompletedProcess[str]:
    """Import what containers run, as if only some distributions were installed."""
    command = [sys.executable, "-W", "ignore", "-c", ALONE, ",".join(sorted(allowed)), ",".join(ENTRIES)]
    path = os.pathsep.join(str(ROOT / part) for part in ("collector", "datasets", "baselines", "evaluators"))
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})


@pytest.fixture(scope="module")
def owners() -> Mapping[str, list[str]]:
    """Distributions by the top-level names that they install."""
    return importlib.metadata.packages_distributions()


@pytest.fixture(scope="module")
def inside() -> list[Path]:
    """Files of ours that containers import."""
    done = _start(_closure(set(_requirements())))
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


def test_bounds_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {line for name, line in _requirements().items() if name not in BACKPORTS} <= set(project)


def test_what_runs_in_containers_starts_with_the_listed_packages_alone(inside: list[Path]) -> None:
    assert COLLECTOR / "runtime" / "service.py" in inside


def test_an_import_that_is_not_listed_would_be_noticed() -> None:
    assert "is not in the image" in _start(_closure({"pyyaml"})).stderr


def test_imports_inside_of_functions_are_listed_too(inside: list[Path], owners: Mapping[str, list[str]]) -> None:
    allowed = _closure(set(_requirements()))
    for file in inside:
        for name in set() if _is_of_originals(file) else _imports([file]):
            assert {_normal(one) for one in owners[name]} & allowed, f"{name}, imported in {file}"


def test_nothing_is_listed_that_nobody_imports(inside: list[Path], owners: Mapping[str, list[str]]) -> None:
    here = [file for file in inside if not _is_of_originals(file)]
    used = {_normal(one) for name in _imports(here) for one in owners[name]}
    assert set(_requirements()) - BACKPORTS <= used


def test_the_agent_needs_the_standard_library_only() -> None:
    assert _imports((COLLECTOR / "agent").glob("*.py")) == set()
    modules = {
        node.module
        for file in (COLLECTOR / "agent").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("faultset")
    }
    assert all(str(module).startswith("faultset.collector.agent") for module in modules)


def test_a_build_is_known_by_what_is_installed_unless_the_environment_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert environment({}).build == installed_build() or environment({}).build == "1.0.0"
    folder = tmp_path / "faultset_build-1.0.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: faultset-build\nVersion: 1.0.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_build() == "1.0.2"
    assert environment({}).build == "1.0.2"
    assert environment({"FAULTSET_BUILD": "1.1.1"}).build == "1.1.1"


def _stages() -> dict[str, list[list[str]]]:
    """Return the instructions of each stage of the Containerfile, as words."""
    text = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", (ROOT / "Containerfile").read_text()))
    stages: dict[str, list[list[str]]] = {"": []}
    for line in filter(None, map(str.strip, text.splitlines())):
        words = line.split()
        if words[0] == "FROM":
            stages[words[3]] = []
        list(stages.values())[-1].append(words)
    return stages


def test_tags_differ_in_the_last_stage_only() -> None:
    stages = _stages()
    assert list(stages)[-1] == "app", "what is built when no target is named"
    assert [words[0] for words in stages["app"]] == ["FROM", "ARG", "RUN", "ENV"]
    rest = [words for name, stage in stages.items() if name != "app" for words in stage]
    assert not any("FAULTSET_BUILD" in word for words in rest for word in words)


def test_the_image_has_the_programs_that_are_run_in_it_and_an_ordinary_user() -> None:
    runtime = _stages()["runtime"]
    installed = {word for words in runtime if words[0] == "RUN" for word in words}
    assert {"python3", "redis-server", "iptables", "iproute2", "util-linux"} <= installed
    assert ["USER", "1000:1000"] in runtime


def test_the_pause_image_has_a_program_of_every_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    programs = {name for name, target in scripts.items() if target.startswith("faultset.collector.runtime")}
    copied = {words[2].rpartition("/")[2] for words in _stages()["pause"] if words[0] == "COPY"}
    assert copied == programs


def test_everything_that_is_copied_exists_and_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for stage in _stages().values():
        for words in stage:
            if words[0] == "COPY" and not words[1].startswith("--"):
                for source in words[1:-1]:
                    assert (ROOT / source).exists(), source
                    assert any(Path(source).is_relative_to(one) for one in sent), source
    assert os.access(ROOT / "image" / "pause.sh", os.X_OK)


def test_the_pause_program_does_nothing_and_ends_when_it_is_told() -> None:
    process = subprocess.Popen([ROOT / "image" / "pause.sh", "geo"], stdout=subprocess.PIPE, start_new_session=True)
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text().strip():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


BUILDER = """#!/bin/sh
echo "$@" >> "$LOG"
case $1 in
  image) echo "[PATH=/usr/bin FAULTSET_BUILD=${STALE:-$(echo "$5" | sed 's/.*://')}]" ;;
esac
"""


def _built(tmp_path: Path, *arguments: str, tool: str = "docker", stale: str = "") -> tuple[int, str, str]:
    (tmp_path / "bin").mkdir(exist_ok=True)
    program = tmp_path / "bin" / tool
    program.write_text(BUILDER)
    program.chmod(0o755)
    (tmp_path / "bin" / "python3").unlink(missing_ok=True)
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    log = tmp_path / "log"
    log.write_text("")
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "LOG": str(log), "BUILDER": tool, "STALE": stale}
    bash = shutil.which("bash") or "bash"
    done = subprocess.run(
        [bash, ROOT / "scripts" / "build-image.sh", *arguments], capture_output=True, text=True, env=env
    )
    return done.returncode, log.read_text(), done.stderr


def test_the_script_builds_every_tag_and_the_pause(tmp_path: Path) -> None:
    code, log, error = _built(tmp_path)
    assert code == 0, error
    built = re.findall(r"--target (\w+) --build-arg FAULTSET_BUILD=(\S+) --build-arg STORES=no --tag (\S+)", log)
    assert built == [*(("app", tag, f"faultset/app:{tag}") for tag in TAGS), ("pause", "3.9", "faultset/pause:3.9")]


def test_the_script_builds_images_with_original_stores(tmp_path: Path) -> None:
    _, log, _ = _built(tmp_path, "--repository", "faultset/stores", "--stores", "1.0.0")
    assert "--build-arg STORES=yes --tag faultset/stores:1.0.0 " in log


def test_the_script_takes_a_repository_and_gives_podman_full_names(tmp_path: Path) -> None:
    _, log, _ = _built(tmp_path, "--repository", "registry.local:5000/x/app", "--push", "1.0.2")
    assert "--tag registry.local:5000/x/app:1.0.2 " in log
    assert "push registry.local:5000/x/pause:3.9" in log
    _, log, _ = _built(tmp_path, "1.0.2", tool="podman")
    assert "--tag docker.io/faultset/app:1.0.2 " in log


def test_the_script_notices_a_cache_that_gives_every_tag_the_same_layers(tmp_path: Path) -> None:
    code, _, error = _built(tmp_path, "1.0.2", stale="1.0.0")
    assert code == 4
    assert "gave faultset/app:1.0.2 the layers of another tag" in error
