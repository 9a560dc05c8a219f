"""Import the OpenStack failure dataset; each test becomes one episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode, ImportFormat, report_issues
from faultset.datasets.imports.formats.openstack_logs import (
    HTTP_CALLS,
    Experiment,
    RoundSegment,
    ends_of,
    find_experiments,
    log_rows,
    processes_of_code,
    read_spans,
    span_rows,
)

_FAILED = "FAILURE"


class OpenStackImport(ImportFormat):
    """OpenStack failure dataset (ESEC/FSE 2019): tables of tests and folders of their logs, or an archive of both.

    The workload is a script, so the requests before a fault differ from those after it. The reference is therefore the
    second round of the script, which has no fault; it is moved so that it ends where the first round begins. Candidates
    are processes. If several processes of a project share the faulty code, each of them is a correct answer.
    """

    name = "openstack"
    title = "OpenStack failure dataset"
    layout = (
        ("a table of tests (nova.tsv, cinder.tsv, neutron.tsv)", r"(^|/)(nova|cinder|neutron)\.tsv$"),
        ("folders Test_n", r"(^|/)Test_"),
    )
    weakness = (
        "There are no cases without a fault and no metrics. The reference is the round after the fault. If several "
        "processes run the faulty code, the faulty process is unknown."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        """Return every test that has a round with a fault."""
        tests = find_experiments(unpack(path))
        if not tests:
            raise DataError(f"{path} holds no test; give the folder with nova.tsv and the folders of its tests")
        return [
            Case(key=test.name, paths=(test.folder,), facts={"row": dict(test.row)}, has_fault=True) for test in tests
        ]

    def load(self, case: Case) -> ForeignEpisode:
        """Read a test."""
        test = Experiment(name=case.key, folder=case.paths[0], row=case.facts["row"])
        faulty, healthy = test.round(1), test.round(2)
        start_ns, end_ns, ahead_s = faulty.window()
        healthy_start_ns, healthy_end_ns, healthy_ahead_s = healthy.window()
        onset = _onset_ns(test, start_ns, end_ns, ahead_s)
        report_issues(partial(_find_issues, test, ahead_s))
        moved = start_ns - healthy_end_ns
        before = RoundSegment(
            round=healthy, start_ns=healthy_start_ns, end_ns=healthy_end_ns, ahead_s=healthy_ahead_s, moved_ns=moved
        )
        segments = (before, RoundSegment(round=faulty, start_ns=start_ns, end_ns=end_ns, ahead_s=ahead_s))
        processes = tuple(sorted({*faulty.logs, *healthy.logs}))
        causes = processes_of_code(test.row["COMPONENT"], processes)
        if not causes:
            raise DataError(f"{test.folder} needs a log of the project with {test.row['COMPONENT']}; restore it")
        pairs = {ends_of(span, processes) for span in read_spans(healthy)} | set(HTTP_CALLS)
        names = set(processes)
        return ForeignEpisode(
            app="openstack",
            view_start_ns=start_ns - (healthy_end_ns - healthy_start_ns),
            view_end_ns=end_ns,
            reference_end_ns=start_ns,
            reference_moved_ns=moved,
            services=processes,
            calls=tuple(sorted((a, b) for a, b in pairs if a in names and b in names and a != b)),
            tables={"logs": partial(log_rows, segments), "spans": partial(span_rows, segments, processes)},
            label=_label(test, causes, onset),
            inputs=(*faulty.files, *healthy.files),
            evidence=(
                {
                    "check": "injection",
                    "subject": test.row["COMPONENT"],
                    "time": onset,
                    "passed": True,
                    "detail": f"the faulty code ran {len(faulty.activations(ahead_s))} times",
                },
                {
                    "check": "health",
                    "subject": "reference",
                    "time": None,
                    "passed": test.row["ROUND_2"] != _FAILED,
                    "detail": f"the round without the fault, moved by {moved} ns",
                },
            ),
        )


def _find_issues(test: Experiment, ahead_s: int) -> Iterator[DataIssue]:
    problem = f"Times of logs are {ahead_s / 3600:+g} h from UTC, without a time zone."
    yield DataIssue("note", test.name, problem, "They are converted to UTC.")
    if test.row["ROUND_2"] == _FAILED:
        yield DataIssue("warning", test.name, "The round without the fault failed too.", "It is the reference anyway.")
    if any(test.round(number).traces is None for number in (1, 2)):
        yield DataIssue("warning", test.name, "A round has no spans.", "The episode has the remaining rows.")
    if len(processes_of_code(test.row["COMPONENT"], tuple(test.round(1).logs))) > 1:
        problem = "The faulty code runs in several processes."
        yield DataIssue("note", test.name, problem, "Each of them is a correct answer.")


def _onset_ns(test: Experiment, start_ns: int, end_ns: int, ahead_s: int) -> int:
    """Return the time when the faulty code first ran; raise DataError if it is outside the round."""
    times = test.round(1).activations(ahead_s)
    if not times:
        raise DataError(f"{test.folder} needs an activation of its fault, but has none; leave the case out")
    if not start_ns <= times[0] < end_ns:
        raise DataError(
            f"the fault of {test.folder} must begin in the {(end_ns - start_ns) / SECOND_NS:.0f} s of the workload, "
            f"but begins {(times[0] - start_ns) / SECOND_NS:+.0f} s from its start; leave the case out"
        )
    return times[0]


def _label(test: Experiment, causes: Sequence[str], onset_ns: int) -> dict[str, Any]:
    row = test.row
    return {
        "fault": row["FAULT_TYPE"].lower().removeprefix("openstack_"),
        "targets": list(causes),
        "root_causes": [
            {"kind": "Process", "name": causes[0], "service": causes[0], "accepted": list(causes), "metric": None}
        ],
        "system_level": "Application",
        "fault_type": "Code Defect",
        "verdict": "manifest" if row["ROUND_1"] == _FAILED else "unknown",
        "inject_start": onset_ns,
        "parameters": {name.lower(): row[name] for name in ("COMPONENT", "CLASS", "FUNCTION", "FAULT_TYPE")},
    }
