"""One episode in a process of its own: plan in, progress and outcome out, as JSON lines."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faultset.collector.apps import load_app
from faultset.collector.episodes.runner import EpisodeRunner
from faultset.collector.episodes.working_folder import Scratch
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms import open_site
from faultset.collector.platforms.journal.journal import Journal
from faultset.core.errors import FaultsetError

PR_SET_PDEATHSIG = 1


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit(1)


def main() -> None:
    """Run the plan given on standard input; exit with 0 whenever an outcome could be reported."""
    request = json.loads(sys.stdin.readline())
    _die_with_parent(request["parent"])
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: stopping.append(received))
    plan, root = Plan.from_json(request["plan"]), Path(request["root"])
    scratch = Scratch.claim(root, plan.episode, plan.platform)
    journal = Journal(scratch.journal)
    try:
        journal.note("plan", **json.loads(plan.to_json()))
        app = load_app(plan.app_file or plan.app).model_copy(update={"trace_sampling": plan.trace_sampling})
        platform = open_site(plan.platform, request["settings"]).make(plan, app, scratch.folder, journal)
        runner = EpisodeRunner(
            plan,
            platform,
            journal,
            root,
            report=lambda phase, end_ns: _say(kind="phase", phase=str(phase), end_ns=end_ns),
            interrupted=lambda: bool(stopping) or os.getppid() != request["parent"],
            parallel=request["parallel"],
        )
        try:
            outcome = asdict(runner.run())
        finally:
            platform.teardown()
    except FaultsetError as error:
        outcome = {"episode": plan.episode, "failure": str(error), "exit_code": error.exit_code, "verdict": None}
    finally:
        journal.close()
    if outcome["failure"] and not outcome.get("interrupted"):
        _keep_for_diagnosis(scratch, root)
    scratch.release()
    _say(kind="outcome", **outcome)


def _keep_for_diagnosis(scratch: Scratch, root: Path) -> None:
    """Keep logs and journal of a failed episode, outside the dataset's versioned part."""
    failed = root / ".failed" / scratch.note.stem
    shutil.rmtree(failed, ignore_errors=True)
    failed.parent.mkdir(exist_ok=True)
    shutil.copytree(
        scratch.folder, failed, ignore=lambda folder, names: [n for n in names if not _is_plain(Path(folder) / n)]
    )


def _is_plain(path: Path) -> bool:
    return path.is_dir() or (path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main()
