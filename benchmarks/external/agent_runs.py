"""Score recorded runs of agents file by file; print format, recorded score and our score as Markdown.

    python benchmarks/external/agent_runs.py FOLDER [--candidates geo,rate,...]

FOLDER contains a folder for each format, with its name; files in other folders are listed as not read.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from faultset.agents import import_runs, score_runs
from faultset.core.errors import FaultsetError

KINDS = (".json", ".jsonl", ".csv")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Recorded runs of agents, file by file.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--candidates", default="")
    options = parser.parse_args()
    candidates = tuple(filter(None, options.candidates.split(",")))
    print("| file | format | runs | statuses | recorded | ours |\n|---|---|---|---|---|---|")
    for file in sorted(options.folder.rglob("*")):
        if file.suffix in KINDS:
            print(
                f"| {' | '.join([str(file.relative_to(options.folder)), *_read(file, options.folder, candidates)])} |"
            )


def _read(file: Path, folder: Path, candidates: tuple[str, ...]) -> list[str]:
    name = file.relative_to(folder).parts[0]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            imported = import_runs(name, file, Path(scratch) / "runs", candidates=candidates)
        except FaultsetError:
            return ["not read", "-", "-", "-", "-"]
        scored = score_runs(Path(scratch) / "runs")
    statuses = [run.status for run in imported.runs]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    recorded = _share([run.truth.recorded_success for run in scored])
    return [name, str(len(imported.runs)), counts, recorded, _share([run.success for run in scored])]


def _share(results: list[bool | None]) -> str:
    scored = [result for result in results if result is not None]
    return f"{sum(scored)}/{len(scored)}" if scored else "-"


if __name__ == "__main__":
    main()
