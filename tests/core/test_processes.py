from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faultset.core.processes import session_nice, set_session_nice

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
        "import os, subprocess; from faultset.core.processes import give_way; give_way(); "
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
