"""A broken plug-in of any kind is named in one sentence with its distribution, and harms nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faultset.agents.formats.contract import agent_format
from faultset.baselines.registry import get_baseline, list_baselines
from faultset.collector.apps import load_app, load_apps
from faultset.collector.faults.registry import faults, get_fault
from faultset.collector.load.driver import driver_class
from faultset.collector.mitigation.attempts import load_mitigator
from faultset.collector.platforms.hosts import load_host_class
from faultset.collector.sources.recorder import load_source, load_sources
from faultset.core.errors import UsageError
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.exports.exporter import load_layout
from faultset.datasets.imports.contract import find_formats, load_format
from faultset.evaluators.scoring.registry import find_scorer, load_scorers

pytestmark = pytest.mark.usefixtures("own_registries")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = sorted(
    {*PROJECT["entry-points"], "faultset.scorers", "faultset.sources"} - {"faultset.commands", "inspect_ai"}
)
DRIVEN = load_app("hotel")

WAYS = {
    "import": ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
    "error": ("raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
    "exit": ("raise SystemExit('bye')\n", "SystemExit: bye"),
    "interrupt": ("raise KeyboardInterrupt\n", "RuntimeError: it raised KeyboardInterrupt"),
    "print": ("print('hello')\nraise OSError('disk')\n", "OSError: disk"),
    "type": ("THING = 42\n", "must be"),
    "name": (
        "from faultset.baselines import baseline\n"
        "from faultset.collector.faults.registry import fault\n"
        "from faultset.evaluators import Metric\n"
        "print('hello')\n",
        "must be",
    ),
}
ASK: dict[str, Callable[[str], Any]] = {
    "faultset.agent_formats": agent_format,
    "faultset.apps": load_app,
    "faultset.baselines": get_baseline,
    "faultset.exporters": load_layout,
    "faultset.faults": get_fault,
    "faultset.importers": load_format,
    "faultset.load_drivers": lambda name: driver_class(
        DRIVEN.model_copy(update={"load": DRIVEN.load.model_copy(update={"driver": name})})
    ),
    "faultset.mitigators": load_mitigator,
    "faultset.platforms": load_host_class,
    "faultset.scorers": find_scorer,
    "faultset.sources": load_source,
}
ALL: dict[str, Callable[[], Any]] = {
    "faultset.apps": load_apps,
    "faultset.baselines": list_baselines,
    "faultset.faults": faults,
    "faultset.importers": lambda: find_formats(Path("/nowhere")) or ["none recognised"],
    "faultset.scorers": lambda: load_scorers() or ["none installed"],
    "faultset.sources": lambda: load_sources() or ["none installed"],
}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one distribution that announces, in every group, a plug-in broken in every way."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "acme_broken-1.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-broken\nVersion: 1.7\n")
    points = []
    for group in GROUPS:
        points.append(f"[{group}]")
        for way, (text, _) in WAYS.items():
            module = f"acme_{group.partition('.')[2]}_{way}"
            (folder / f"{module}.py").write_text(text if way != "name" else text + _misnamed(group))
            points.append(f"broken-{way} = {module}{'' if _by_module(group) else ':THING'}")
    (info / "entry_points.txt").write_text("\n".join(points) + "\n")
    return folder


def _by_module(group: str) -> bool:
    return group in ("faultset.faults", "faultset.apps")


def _misnamed(group: str) -> str:
    """Return a module whose object calls itself otherwise; where objects have no name, one that lacks a method."""
    if group == "faultset.faults":
        return (
            "@fault('elsewhere', system_level='Application', fault_type='Code Defect', targets=lambda app: (),\n"
            "       check=lambda platform, target, parameters, before: None)\n"
            "def inject(platform, target, rng):\n    '''Nothing.'''\n    return {}\n"
        )
    if group == "faultset.baselines":
        return (
            "@baseline('elsewhere', title='E', task='localization', paper='none', kind='rule',\n"
            "          tables=(), speed='fast')\n"
            "class THING:\n    def localize(self, view): ...\n"
        )
    if group == "faultset.scorers":
        return (
            "THING = Metric(name='elsewhere', title='E', unit='share', meaning='nothing', task='localization',\n"
            "               compute=lambda row: 0.0)\n"
        )
    return "class THING:\n    '''Nothing.'''\n"


def test_every_kind_of_plugin_is_looked_at() -> None:
    assert sorted(ASK) == GROUPS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("group", GROUPS)
def test_asked_for_by_name_it_is_one_sentence(
    group: str, way: str, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(site)
    with pytest.raises(UsageError) as caught:
        ASK[group](f"broken-{way}")
    sentence = str(caught.value)
    assert f'the plug-in "broken-{way}" of acme-broken 1.7 (entry point {group}, ' in sentence
    assert "\n" not in sentence
    if way != "name":
        assert WAYS[way][1] in sentence
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("group", ALL)
def test_the_others_of_its_group_stay(
    group: str,
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from faultset.collector.faults import registry
    from faultset.core import plugins

    before = set(ALL[group]())
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(plugins, "_reported", set())
    registry._load.cache_clear()
    after = set(ALL[group]())
    assert before <= after
    assert not [name for name in after if str(name).startswith("broken")]
    for way in WAYS:
        assert caplog.text.count(f'the plug-in "broken-{way}" of acme-broken 1.7 (entry point {group}') == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("all_first", [True, False])
@pytest.mark.parametrize("group", ["faultset.baselines", "faultset.faults"])
def test_what_the_decorator_of_a_rejected_one_announced_is_forgotten(
    group: str, all_first: bool, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faultset.collector.faults import registry

    for module in [name for name in sys.modules if name.startswith("acme_")]:
        monkeypatch.delitem(sys.modules, module)
    before = set(ALL[group]())
    assert "elsewhere" not in before
    monkeypatch.syspath_prepend(site)
    registry._load.cache_clear()
    if not all_first:
        with pytest.raises(UsageError, match="must be"):
            ASK[group]("broken-name")
    assert set(ALL[group]()) == before
    with pytest.raises(UsageError, match=r'unknown \w+ "elsewhere"'):
        ASK[group]("elsewhere")


def test_a_rejected_one_leaves_the_others_of_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "acme_half-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-half\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[faultset.faults]\na-wrong-name = acme_half\nelsewhere = acme_half\n")
    text = WAYS["name"][0].replace("print('hello')\n", "") + _misnamed("faultset.faults")
    (tmp_path / "acme_half.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="must be the module that defines the fault a-wrong-name"):
        get_fault("a-wrong-name")
    assert get_fault("elsewhere").name == "elsewhere"


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "data"
    write_example_dataset(root, episodes=2, baseline_s=20, fault_s=20)
    return root


@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        ("list faults --json", ["faults"]),
        ("list apps --json", ["apps"]),
        ("list sources --json", ["sources"]),
        ("list baselines --json", ["baselines"]),
        ("collect --faults all --apps all --dry-run --json", ["faults", "apps"]),
        ("evaluate {dataset} --baselines random --json --out {out}", ["scorers"]),
        ("dataset export {dataset} {out} --as wide-csv", []),
        ("dataset import --help", []),
    ],
)
def test_commands_work_and_what_they_write_is_clean(
    arguments: str, groups: list[str], site: Path, dataset: Path, tmp_path: Path
) -> None:
    words = arguments.format(dataset=dataset, out=tmp_path / "out").split()
    program = "from faultset.core.start import faultset; faultset()"
    path = os.pathsep.join([str(site), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if "--json" in words:
        assert isinstance(json.loads(done.stdout), list | dict)
    for group in groups:
        for way in WAYS:
            assert f'"broken-{way}" of acme-broken 1.7 (entry point faultset.{group}' in done.stderr
