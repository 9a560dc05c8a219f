"""Which files episodes are read from: what users choose, what the doctor tells and what the evidence records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode


def choose_input(cases: Sequence[Case], name: str | None, title: str) -> Sequence[Case]:
    """Return the cases so that those with a candidate of that name are read from it; the others stay as they are.

    Parameters
    ----------
    name
        Name of a file; None for the file that the format prefers.
    title
        Name of the format in the error.

    Raises
    ------
    DataError
        No case has a candidate of that name.
    """
    if name is None:
        return cases
    candidates = sorted({candidate for case in cases for candidate in case.candidates})
    if not candidates:
        raise DataError(f"{title} data has one version of each file; leave out --input")
    if name not in candidates:
        raise DataError(f"no case can be read from {name}; choose one of {', '.join(candidates)}")
    return [
        replace(case, candidates=(name, *(other for other in case.candidates if other != name)))
        if name in case.candidates
        else case
        for case in cases
    ]


def count_inputs(cases: Sequence[Case]) -> dict[str, int]:
    """Return how many cases are read from each file, of those that have a choice."""
    return dict(sorted(Counter(case.candidates[0] for case in cases if case.candidates).items()))


def describe_inputs(cases: Sequence[Case]) -> str:
    """Return a sentence on the files that cases are read from; empty where there is no choice."""
    counts = count_inputs(cases)
    if not counts:
        return ""
    if len(counts) == 1:
        return f"Input file: {next(iter(counts))}."
    files = (f"{name} ({count} {'case' if count == 1 else 'cases'})" for name, count in counts.items())
    return f"Input files: {', '.join(files)}."


def input_issues(cases: Sequence[Case]) -> Iterator[DataIssue]:
    """Yield an issue for each case that could be read from several files, with the one that is read."""
    for case in cases:
        if len(case.candidates) > 1:
            yield DataIssue(
                severity="warning",
                place=case.key,
                found=f"It has several input files: {', '.join(sorted(case.candidates))}.",
                handling=f"{case.candidates[0]} is read; --input FILE chooses another.",
            )


def input_evidence(case: Case, foreign: ForeignEpisode, importer: str) -> list[dict[str, Any]]:
    """Return a row of evidence for each file that an episode was read from, relative to the folder of its case."""
    folders = [path if path.is_dir() else path.parent for path in case.paths]
    base = os.path.commonpath(folders) if folders else ""
    names = {Path(os.path.relpath(path, base)).as_posix() for path in foreign.inputs or case.paths}
    return [
        {"check": "input", "subject": name, "time": None, "passed": True, "detail": f"read by the importer {importer}"}
        for name in sorted(names)
    ]
