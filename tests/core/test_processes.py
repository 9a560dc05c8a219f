from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from faultset.collector.campaigns.episode_processes import PROGRAM
from faultset.core.processes import (
    import_path,
    make_scratch,
    python_command,
    remove_abandoned,
    scratch,
    session_nice,
    set_session_nice,
)
from faultset.evaluators import evaluate

RUN = [sys.executable, "-c"]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, code], capture_output=True, text=True, timeout=30)


def test_a_child_whose_parent_is_gone_already_exits_at_once():
    code = f"from faultset.core.processes import die_with_parent; die_with_parent({os.getpid()} + 1); print('alive')"
    result = run(code)
    assert (result.returncode, result.stdout) == (1, "")


def test_a_child_gets_the_signal_when_its_parent_ends(tmp_path):
    told = tmp_path / "told"
    child = (
        "import os, signal, sys; from faultset.core.processes import die_with_parent; "
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(told)!r}, 'w').close(), os._exit(0))); "
        "die_with_parent(int(sys.argv[1]), signal.SIGTERM); print('ready', flush=True); signal.pause()"
    )
    parent = (
        "import os, subprocess, sys; "
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())], stdout=subprocess.PIPE); "
        "assert child.stdout.readline() == b'ready\\n'; os._exit(0)"
    )
    assert run(parent).returncode == 0
    deadline = time.monotonic() + 20
    while not told.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told.exists()


def test_a_process_shows_the_name_that_it_gave_itself():
    code = "from faultset.core.processes import name_process; name_process('a-rather-long-name'); "
    result = run(code + "print(open('/proc/self/comm').read().strip())")
    assert result.stdout == "a-rather-long-n\n"


def test_orphans_get_the_adopting_process_as_their_parent(tmp_path):
    seen = tmp_path / "parent"
    grandchild = f"import os, time; time.sleep(0.2); open({str(seen)!r}, 'w').write(str(os.getppid()))"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {grandchild!r}])"
    code = (
        "import os, subprocess, sys; from faultset.core.processes import adopt_orphans; adopt_orphans(); "
        f"subprocess.run([sys.executable, '-c', {child!r}]); os.wait(); print(os.getpid())"
    )
    assert run(code).stdout.strip() == Path(seen).read_text()


def in_own_session(code: str) -> list[str]:
    """Run code in a session of its own, so that the niceness of ours stays, and return what it prints."""
    return subprocess.run(
        [*RUN, code], capture_output=True, text=True, timeout=30, start_new_session=True
    ).stdout.split()


def test_a_process_that_gives_way_and_its_children_go_last():
    code = (
        "import os, subprocess; from faultset.core.processes import lower_priority; lower_priority(); "
        "print(os.nice(0), int(subprocess.check_output(['nice'])))"
    )
    last = str(min(19, os.nice(0) + 10))
    assert in_own_session(code) == [last, last]


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel does not share by session")
def test_a_session_goes_behind_others_and_beside_them_again():
    code = (
        "import os; from faultset.core.processes import session_nice, set_session_nice; print(session_nice()); "
        "set_session_nice(10); print(session_nice(os.getpid())); "
        "set_session_nice(0, os.getpid()); print(session_nice())"
    )
    assert in_own_session(code) == ["0", "10", "0"]


def test_the_niceness_of_a_session_that_is_gone_is_nobodys():
    gone = subprocess.Popen(["true"])
    gone.wait()
    set_session_nice(10, gone.pid)
    assert session_nice(gone.pid) == 0


SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
SHADOWED = ("nt", "queue", "random", "selectors", "socket", "tempfile", "uuid")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which files have the names of modules."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_module_of_the_working_folder_shadows_none(folder: Path) -> None:
    code = f"import {', '.join(SHADOWED[1:])}; print('imported')"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert "shadowed" in plain.stderr
    ours = subprocess.run(python_command("-c", code), capture_output=True, text=True, check=True, cwd=folder)
    assert ours.stdout == "imported\n"


def test_the_process_of_an_episode_reads_its_order_in_such_a_folder(folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": import_path()}
    done = subprocess.run(
        python_command(*PROGRAM),
        input="no order\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert "shadowed" not in done.stderr + done.stdout
    assert "order" in done.stderr or "JSON" in done.stderr


def test_methods_are_run_in_such_a_folder(folder: Path) -> None:
    done = evaluate(SAMPLE, ["max-z"], out=folder / "results", workers=1)
    assert {row.status for row in done.rows if row.protocol == "oracle"} == {"ok"}


def test_a_notebook_can_import_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) not in import_path().split(os.pathsep)
    monkeypatch.syspath_prepend("")
    assert import_path().split(os.pathsep)[0] == str(tmp_path)


@pytest.fixture(autouse=True)
def scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_killed_process_is_removed_by_the_next(scratch_folder: Path):
    code = (
        "import os, signal; from faultset.core.processes import make_scratch; "
        "make_scratch('dask'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"TMPDIR": str(scratch_folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    (abandoned,) = scratch_folder.iterdir()
    assert abandoned.name.startswith("faultset-dask-")
    mine = make_scratch("dask")
    assert list(scratch_folder.iterdir()) == [mine]


def test_what_is_not_proved_to_be_abandoned_stays(scratch_folder: Path):
    mine = make_scratch("methods")
    stays = [mine, scratch_folder / "faultset-dask-notes", scratch_folder / "faultset-dask-1-2-3-x"]
    for path in stays[1:]:
        path.mkdir()
    (scratch_folder / "elsewhere").mkdir()
    link = scratch_folder / mine.name.replace(f"-{os.getpid()}-", "-999999999-")
    link.symlink_to(scratch_folder / "elsewhere")
    remove_abandoned()
    assert all(path.exists() for path in (*stays, link, scratch_folder / "elsewhere"))


def test_a_folder_is_removed_when_its_work_ends(scratch_folder: Path):
    with scratch("labels") as made:
        assert Path(made).is_dir()
    assert list(scratch_folder.iterdir()) == []
