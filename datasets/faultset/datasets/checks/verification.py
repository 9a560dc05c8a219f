"""Verify a version: its files, their content, and that start times, row counts and the like do not predict faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError, how_to_install
from faultset.core.output import Progress, StepCounter
from faultset.core.printable import count_text
from faultset.core.regular_files import FileStamp
from faultset.core.times import SECOND_NS
from faultset.datasets.checks import Finding, Severity
from faultset.datasets.checks.leaks import leak_findings
from faultset.datasets.checks.telemetry import journal_messages, reference_findings, telemetry_findings
from faultset.datasets.dataset import Dataset, Episode
from faultset.datasets.format.context import IMPORTED, read_context
from faultset.datasets.format.episodes import EPISODES, JOURNAL_FILE, table_file
from faultset.datasets.format.incidents import read_chunk_journals
from faultset.datasets.format.recordings import CHUNKS, RECORDINGS, listed_chunks
from faultset.datasets.format.schemas import TABLES, TRUTH_TABLES, time_column
from faultset.datasets.format.storage import TableSchemaError
from faultset.datasets.format.version_files import FileRecord, file_names
from faultset.datasets.format.versions import read_version
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.validation import expected_files, recording_problems
from faultset.datasets.recordings.window_view import ChunkView, incidents_in, label_of_chunk
from faultset.datasets.validation import content_problems, episode_files, record_problem, rows_problem
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05
MIN_EPISODES = 8
"""Minimum number of episodes with a fault, and of episodes without one."""
ONSET_SPREAD = 0.02
"""The onset is predictable if its relative position in the view has a smaller standard deviation than this."""
_FOLD_COUNT = 5
_MAX_SHUFFLES = 199
_MAX_BETTER = 20
_DAY_NS = 86_400 * SECOND_NS


def chance_findings(views: Mapping[str, EpisodeView], faulty: Mapping[str, bool]) -> list[Finding]:
    """Return a finding if metadata predict the fault, or if they could not be tested."""
    counts = (sum(faulty.values()), len(faulty) - sum(faulty.values()))
    if min(counts) < MIN_EPISODES:
        return [
            _build_chance_finding(
                "note",
                f"not tested: {count_text(counts[0], 'episode')} with a fault and {counts[1]} without, but at least "
                f"{MIN_EPISODES} of each are needed; collect more into this dataset, with a different --seed or more "
                "--repeat and --normal",
            )
        ]
    if find_spec("sklearn") is None:
        return [
            _build_chance_finding(
                "warning",
                "the predictability of faults by start time, order, length and files was not tested, because "
                f"scikit-learn is not installed; {how_to_install('evaluate')}",
            )
        ]
    features = circumstances(views)
    episodes = sorted(views)
    score, p_value = predictability(features, np.array([faulty[episode] for episode in episodes]))
    if p_value > LEVEL:
        return []
    return [
        _build_chance_finding(
            "warning",
            f"start time, order, length, files and healthy row counts predict the fault with balanced accuracy "
            f"{score:.2f} (permutation p = {p_value:.3f}); this happens by chance in one of {round(1 / LEVEL)} clean "
            "datasets; collect the same number of episodes with a different --seed and verify them: if the warning "
            "appears again, methods may score without finding faults",
        )
    ]


def onset_findings(
    views: Mapping[str, EpisodeView], onsets: Mapping[str, int | None], *, min_episodes: int = MIN_EPISODES
) -> list[Finding]:
    """Return a finding if the onset has the same relative position in all imported views.

    `collect` draws the onset at random; many benchmarks record for the same time before and after it.
    """
    shares = []
    for episode, onset in onsets.items():
        start, end = views[episode].window
        if onset is not None and views[episode].context.platform == IMPORTED:
            shares.append((onset - start) / (end - start))
    if len(shares) < min_episodes or float(np.std(shares)) > ONSET_SPREAD:
        return []
    return [
        _build_chance_finding(
            "warning",
            f"the onset is at {np.mean(shares):.0%} of the view in all {len(shares)} imported episodes (standard "
            f"deviation {np.std(shares):.1%}) and is therefore predictable; evaluate localization with the "
            "oracle protocol and ignore detection",
        )
    ]


def circumstances(views: Mapping[str, EpisodeView]) -> np.ndarray:
    """Return facts that do not depend on telemetry values, with one row per episode, sorted by id."""
    episodes = sorted(views)
    tables = [*TABLES, *sorted({table for view in views.values() for table in view.tables} - TABLES.keys())]
    starts = np.array([views[episode].window[0] for episode in episodes])
    rows = []
    for episode, order in zip(episodes, np.argsort(np.argsort(starts)), strict=True):
        view = views[episode]
        start, end = view.window
        angle = 2 * np.pi * (start % _DAY_NS) / _DAY_NS
        counts = [_count_reference_rows(view, table) if table in view.tables else None for table in tables]
        present = [count is not None for count in counts]
        filled = [np.log1p(count or 0) for count in counts]
        rows.append([np.sin(angle), np.cos(angle), order, (end - start) / 1e9, *present, *filled])
    return np.array(rows, dtype=float)


def predictability(features: np.ndarray, faulty: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """Return the balanced accuracy of a depth-2 tree in five folds, and its permutation p-value.

    Shuffling stops early once the p-value is clearly large (Besag and Clifford, 1991).
    """
    rng = np.random.default_rng(seed)
    fold = rng.permutation(np.arange(len(faulty)) % _FOLD_COUNT)
    score = _fold_accuracy(features, faulty, fold)
    better = 0
    for shuffles in range(1, _MAX_SHUFFLES + 1):
        better += _fold_accuracy(features, rng.permutation(faulty), fold) >= score
        if better == _MAX_BETTER:
            return score, better / shuffles
    return score, (1 + better) / (1 + _MAX_SHUFFLES)


def _fold_accuracy(features: np.ndarray, faulty: np.ndarray, fold: np.ndarray) -> float:
    from sklearn.tree import DecisionTreeClassifier

    predicted = np.empty(len(faulty), dtype=bool)
    for number in range(_FOLD_COUNT):
        is_test = fold == number
        # with few rows, balanced weights prevent a tree from always predicting the larger class
        tree = DecisionTreeClassifier(max_depth=2, min_samples_leaf=2, class_weight="balanced", random_state=0)
        predicted[is_test] = tree.fit(features[~is_test], faulty[~is_test]).predict(features[is_test])
    return float((predicted[faulty].mean() + (~predicted[~faulty]).mean()) / 2)


def _count_reference_rows(view: EpisodeView, table: str) -> int:
    column = time_column(table)
    times = view.table(table, columns=[column])[column].cast(pa.int64()).to_numpy()
    start, end = view.reference
    return int(((times >= start) & (times < end)).sum())


def _build_chance_finding(severity: Severity, message: str) -> Finding:
    return Finding(severity=severity, check="chance", episode=None, file=None, message=message)


def verify(root: Path | str, version: str | None = None, *, progress: Progress | None = None) -> list[Finding]:
    """Check a version thoroughly and return all findings.

    - Files: complete, without extra files, with the recorded size, hash and row count.
    - Tables: readable, with the expected schema, sorted, inside the view, without malformed values, malformed ids or
      gaps (`faultset.datasets.checks.telemetry`).
    - Labels and incidents: consistent with the episode or recording, targets among the services.
    - Views: no trace of the fault's name, the injector or the journal (`faultset.datasets.checks.leaks`), and no
      length, time or row count that predicts whether there is a fault.

    Parameters
    ----------
    root
        Dataset folder.
    version
        By default the newest.
    progress
        Called with the number of finished episodes and the total.

    Raises
    ------
    DataError
        The dataset or version does not exist, or its version file cannot be read.
    """
    root = Path(root)
    dataset = Dataset(root, read_version(root, version))
    intact, findings = _check_episodes(root, dataset, StepCounter(len(dataset.episodes), progress))
    labels = {episode: dataset.label(episode) for episode in intact}
    views = {episode: dataset.view(episode) for episode in intact}
    journals = {episode: dataset[episode].journal for episode in intact}
    findings += _declaration_findings(views)
    findings += reference_findings(views)
    for episode in intact:
        findings += _source_findings(episode, dataset[episode].evidence)
    findings += telemetry_findings(views)
    findings += leak_findings(views, labels, journals)
    if dataset.episodes or not dataset.recording_files:
        findings += chance_findings(views, {episode: label.fault is not None for episode, label in labels.items()})
    findings += _recordings_findings(root, dataset)
    findings += onset_findings(views, {episode: label.inject_start_ns for episode, label in labels.items()})
    if len(intact) < len(dataset.episodes):
        damaged = f"views of {len(dataset.episodes) - len(intact)} of {count_text(len(dataset.episodes), 'episode')}"
        message = f"{damaged} were not searched, because their files are damaged"
        findings.append(Finding(severity="note", check="leak", episode=None, file=None, message=message))
    return findings


def _check_episodes(root: Path, dataset: Dataset, steps: StepCounter) -> tuple[list[str], list[Finding]]:
    """Check files and content of every episode; also return the episodes whose files are intact."""
    findings: list[Finding] = []
    intact: list[str] = []
    for episode in dataset.episodes:
        episode_findings = list(_file_findings(root, episode, dataset.files[episode]))
        if not any(finding.severity == "error" for finding in episode_findings):
            episode_findings += _content_findings(root, episode)
        if all(finding.check in ("label", "window", "journal") for finding in episode_findings):
            intact.append(episode)
        findings += episode_findings
        steps.add()
    return intact, findings


def _recordings_findings(root: Path, dataset: Dataset) -> list[Finding]:
    """Check the files and content of recordings, and search each chunk for leaks like the view of an episode."""
    findings: list[Finding] = []
    for recording, files in dataset.recording_files.items():
        unit = f"{RECORDINGS}/{recording}"
        recording_findings = list(_recording_file_findings(root, unit, files))
        if not recording_findings:
            try:
                recording_findings += [
                    _build_finding(unit, check, problem, name)
                    for name, check, problem in recording_problems(root / unit, recording, listed_chunks(files))
                ]
            except DataError as error:
                recording_findings.append(_build_finding(unit, "context", str(error)))
        findings += recording_findings
        if not recording_findings:
            findings += _chunk_findings(dataset.recording(recording))
    return findings


def _build_finding(
    unit: str, check: str, message: str, file: str | None = None, severity: Severity = "error"
) -> Finding:
    """Return a finding about an episode or recording, such as `episodes/<id>`, and a file below its folder."""
    path = None if file is None else f"{unit}/{file}"
    return Finding(severity=severity, check=check, episode=unit.partition("/")[2], file=path, message=message)


def _recording_file_findings(root: Path, unit: str, files: Mapping[str, FileRecord]) -> Iterator[Finding]:
    try:
        expected = expected_files(root / unit, files)
    except (DataError, PermissionError) as error:
        yield _build_finding(unit, "context", str(error))
        return
    for name in sorted({*expected} - files.keys()):
        yield _build_finding(unit, "files", "the version does not list it; create another version", name)
    numbers = {f"{CHUNKS}/{number:04d}" for number in listed_chunks(files)}
    for name in file_names(root / unit):
        # a recording may have grown since the version was created
        if name not in files and name.rpartition("/")[0].removesuffix("/telemetry").removesuffix("/truth") in numbers:
            yield _build_finding(unit, "files", "is not part of the version; remove it", name)
    for name, record in files.items():
        yield from _record_findings(root, unit, name, record)


def _record_findings(root: Path, unit: str, name: str, record: FileRecord) -> Iterator[Finding]:
    """Compare a file with its record in the version."""
    path = root / unit / name
    try:
        problem = record_problem(path, record, FileStamp.of(path, root))
    except (DataError, PermissionError) as error:
        yield _build_finding(unit, "files", str(error), name)
        return
    if problem is not None:
        yield _build_finding(unit, "checksum", f"{problem}; restore it", name)


def _chunk_findings(recording: Recording[Dataset]) -> Iterator[Finding]:
    """Search the chunks for gaps, malformed rows and texts that reveal the truth."""
    chunks = {f"{recording.id}/{chunk.folder}": chunk for chunk in recording.view.chunks}
    views = {name: ChunkView(recording.path, recording.context, chunk) for name, chunk in chunks.items()}
    yield from telemetry_findings(views)
    cuts = {name: label_of_chunk(recording.truth.incidents, chunk) for name, chunk in chunks.items()}
    records = read_chunk_journals(recording.path, chunks.values())
    journals: dict[str, list[Mapping[str, Any]]] = {}
    for name, chunk in chunks.items():
        # the texts of an incident may also appear in the chunks after its injection
        scopes = {incident.incident for incident in incidents_in(recording.truth.incidents, chunk)}
        earlier = [record for record in records if record.get("scope") in scopes]
        journals[name] = [*earlier, *read_chunk_journals(recording.path, [chunk])]
    for finding in leak_findings(views, cuts, journals):
        yield replace(finding, file=(finding.file or "").replace(f"{EPISODES}/", f"{RECORDINGS}/", 1))


def _file_findings(root: Path, episode: str, records: Mapping[str, FileRecord]) -> Iterator[Finding]:
    unit = f"{EPISODES}/{episode}"
    folder = root / unit
    declared = _declared_tables(folder)
    present = set(file_names(folder)) if folder.is_dir() and not folder.is_symlink() else set()
    for name in sorted({*episode_files(declared)} - records.keys()):
        yield _build_finding(unit, "files", "the version does not list it; collect the episode again", name)
    for name in sorted(present - records.keys()):
        yield _build_finding(unit, "files", "is not part of the version; remove it", name)
    for name, record in records.items():
        if name not in present:
            yield _build_finding(unit, "files", "is missing; restore it", name)
            continue
        findings = list(_record_findings(root, unit, name, record))
        yield from findings
        if name.endswith(".parquet") and all(finding.check != "files" for finding in findings):
            yield from _parquet_findings(folder / name, unit, name, record, declared)


def _declared_tables(folder: Path) -> Mapping[str, pa.Schema]:
    try:
        return read_context(folder).tables
    except DataError:
        return TABLES  # `content_problems` reports the damage


def _parquet_findings(
    path: Path, unit: str, name: str, record: FileRecord, declared: Mapping[str, pa.Schema]
) -> Iterator[Finding]:
    schema = declared.get(path.stem) or TRUTH_TABLES.get(path.stem)
    if schema is None:
        message = "is not a table of this schema version, and the context does not declare it; remove it"
        yield _build_finding(unit, "schema", message, name)
        return
    try:
        problem = rows_problem(path, record, schema)
    except DataError as error:
        check = "schema" if isinstance(error, TableSchemaError) else "parquet"
        yield _build_finding(unit, check, str(error), name)
        return
    if problem is not None:
        yield _build_finding(unit, "checksum", f"{problem}; restore it", name)


def _content_findings(root: Path, episode: str) -> list[Finding]:
    unit = f"{EPISODES}/{episode}"
    try:
        findings = [
            _build_finding(unit, check, problem, name)
            for name, check, problem in content_problems(root / unit, episode)
        ]
    except DataError as error:
        return [_build_finding(unit, "context", str(error))]
    if not any(finding.check in ("context", "rows") for finding in findings):
        opened = Episode(id=episode, path=root / unit)
        view = opened.view
        times = {table: view.table(table, [time_column(table)])[time_column(table)] for table in view.tables}
        objects = view.table("objects", ["time", "kind", "name"])
        findings += [
            _build_finding(unit, "journal", message, JOURNAL_FILE)
            for message in journal_messages(opened.journal, opened.label, times, objects)
        ]
    return findings


def _declaration_findings(views: Mapping[str, EpisodeView]) -> Iterator[Finding]:
    """Yield a finding for each added table whose columns differ between episodes."""
    first: dict[str, tuple[str, pa.Schema]] = {}
    for episode in sorted(views):
        for added in views[episode].context.added_tables:
            other, schema = first.setdefault(added.name, (episode, added.schema))
            if not added.schema.equals(schema, check_metadata=True):
                message = f"table {added.name} is declared differently in episode {other}; read them separately"
                yield _build_finding(f"{EPISODES}/{episode}", "schema", message, table_file(added.name), "warning")


def _source_findings(episode: str, evidence: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding for each source whose telemetry of an episode is incomplete."""
    for row in evidence[(evidence["check"] == "source") & ~evidence["passed"]].itertuples():
        message = f"the source of {row.subject} is incomplete: {row.detail}"
        yield _build_finding(f"{EPISODES}/{episode}", "source", message, severity="warning")
