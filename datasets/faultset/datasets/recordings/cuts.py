"""Cut ordinary episodes out of a recording: one around each incident, and episodes without a fault."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError, UsageError
from faultset.core.files import translate_write_errors
from faultset.core.times import SECOND_NS
from faultset.datasets.cache import cached_path, make_cache
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.incidents import Incident, RecordingTruth
from faultset.datasets.format.labels import UNLABELLED
from faultset.datasets.format.recordings import Stretch
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.view import RecordingView
from faultset.datasets.recordings.window_view import select_available_rows
from faultset.datasets.views import EpisodeView

REVISION = 1
"""Increment this when cuts of the same recording change."""
ONSET_SPREAD = 0.2
"""Maximum deviation of the time before the onset from its mean, as a share of the mean."""
REFERENCE_SHARE = 0.8
"""Length of the reference, as a share of the mean time before the onset."""
PROFILE = "cut"
"""Profile of cut episodes."""
_MIN_LENGTH_S = 1.0


@dataclass(frozen=True, kw_only=True)
class CutLengths:
    """Mean lengths of the healthy time before and of the view after the onset, in seconds."""

    before_s: float
    after_s: float

    def __post_init__(self) -> None:
        for name in ("before_s", "after_s"):
            if not getattr(self, name) >= _MIN_LENGTH_S:
                raise UsageError(
                    f"{name} must be at least {_MIN_LENGTH_S:g} s, got {getattr(self, name)!r}; give a longer time"
                )

    @property
    def view_ns(self) -> int:
        return round((self.before_s + self.after_s) * SECOND_NS)

    def before_ns(self, share: float) -> int:
        return round(share * self.before_s * SECOND_NS)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Window of an episode to cut; `incident` is None for an episode without a fault."""

    start_ns: int
    end_ns: int
    reference_end_ns: int
    incident: Incident | None = None

    def episode_id(self, recording: str) -> str:
        """Return the opaque id of the episode, which is the same for identical cuts."""
        text = f"{recording}\0{self.start_ns}\0{self.end_ns}\0{self.reference_end_ns}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_cuts(
    recordings: Sequence[tuple[RecordingView, RecordingTruth]],
    lengths: CutLengths,
    *,
    healthy: int | None = None,
    hashes: Sequence[str] = (),
    out: Path | str | None = None,
) -> Path:
    """Write the episodes of recordings of one dataset as another dataset, and return its folder.

    `Recording.episodes` describes the parameters; `healthy` applies to each recording. `hashes` of the recordings'
    files identify the cuts in the cache.
    """
    from faultset.core.locks import new_folder  # imports psutil, which reading does not need

    views = [view for view, _ in recordings]
    key = _compute_key(views, lengths, healthy, hashes)
    folder = (cached_path(views[0].folder.parent.parent, f"cuts-{key}") if out is None else Path(out)).absolute()
    if out is None and folder.is_dir() and any(folder.iterdir()):
        return folder
    cuts = [(view, truth, cut) for view, truth in recordings for cut in plan_cuts(truth, lengths, healthy)]
    if not cuts:
        names = ", ".join(view.recording for view in views)
        raise DataError(
            f"recording {names} has no incident and no healthy stretch for a view of {lengths.before_s:g} s "
            f"before and {lengths.after_s:g} s after an onset; choose shorter times"
        )
    with translate_disk_full(folder.parent), translate_write_errors(folder):
        if out is None:
            make_cache(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder, "cut") as scratch:
            for view, truth, cut in cuts:
                write_cut(view, truth, cut, scratch)
            names = [view.recording for view in views]
            source = {"recordings": names, **asdict(lengths), "healthy": healthy}
            create_version(scratch, provenance={"cut_from": source})
    return folder


def _compute_key(
    views: Sequence[RecordingView], lengths: CutLengths, healthy: int | None, hashes: Sequence[str]
) -> str:
    chunks = [[view.recording, *map(asdict, view.chunks)] for view in views]
    identity = json.dumps([REVISION, chunks, [*hashes], asdict(lengths), healthy], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def plan_cuts(truth: RecordingTruth, lengths: CutLengths, healthy: int | None) -> list[Cut]:
    """Return the windows of all episodes of a recording, at most `healthy` of them without a fault."""
    return [*plan_fault_cuts(truth, lengths), *plan_healthy_cuts(truth, lengths, healthy)]


def plan_fault_cuts(truth: RecordingTruth, lengths: CutLengths) -> Iterator[Cut]:
    """Yield the window of each incident that `Recording.episodes` does not leave out."""
    bounds = {incident.incident: truth.bounds(incident) for incident in truth.incidents}
    for incident in truth.incidents:
        onset_ns = incident.start_ns
        before = _find_healthy_before(truth.healthy_stretches, incident.inject_start_ns or onset_ns)
        if before is None:
            continue
        last_ns = incident.recover_start_ns or bounds[incident.incident][1]
        other_bounds = [pair for name, pair in bounds.items() if name != incident.incident]
        last_ns = min([last_ns, *(start_ns for start_ns, _ in other_bounds if start_ns >= onset_ns)])
        if any(start_ns < onset_ns < end_ns for start_ns, end_ns in other_bounds):
            continue
        if any(void.overlaps(onset_ns, last_ns) for void in truth.void_stretches):
            continue
        rng = _create_rng(incident.episode, incident.incident)
        start_ns = _draw_start(rng, lengths, onset_ns, before.start_ns, last_ns - lengths.view_ns)
        if start_ns is not None and start_ns + lengths.view_ns > onset_ns:
            yield _build_cut(start_ns, lengths, incident)


def _find_healthy_before(stretches: Sequence[Stretch], onset_ns: int) -> Stretch | None:
    """Return the healthy stretch that ends with an onset; None if the system was not healthy then."""
    return next((stretch for stretch in stretches if stretch.start_ns < onset_ns <= stretch.end_ns), None)


def _draw_start(
    rng: np.random.Generator, lengths: CutLengths, onset_ns: int, earliest_ns: int, latest_ns: int
) -> int | None:
    """Draw the start of a view as in collected episodes; if the range is empty, return the latest possible start.

    Return None if the healthy time before the onset is too short.
    """
    low = max(earliest_ns, onset_ns - lengths.before_ns(1 + ONSET_SPREAD))
    high = min(latest_ns, onset_ns - lengths.before_ns(1 - ONSET_SPREAD))
    if low <= high:
        return int(rng.integers(low, high + 1))
    start_ns = min(latest_ns, onset_ns - lengths.before_ns(REFERENCE_SHARE))
    return start_ns if start_ns >= earliest_ns else None


def plan_healthy_cuts(truth: RecordingTruth, lengths: CutLengths, limit: int | None) -> Iterator[Cut]:
    """Yield windows of healthy stretches; draw `limit` of them if there are more.

    Windows of the same stretch follow each other without gaps; the first one starts at a random time.
    """
    starts = []
    for stretch in truth.healthy_stretches:
        count, rest_ns = divmod(stretch.end_ns - stretch.start_ns, lengths.view_ns)
        if count:
            rng = _create_rng(stretch.recording, str(stretch.start_ns))
            first_ns = stretch.start_ns + int(rng.integers(0, rest_ns + 1))
            starts += [first_ns + number * lengths.view_ns for number in range(count)]
    if limit is not None and limit < len(starts):
        starts = sorted(_create_rng("healthy", str(len(starts))).choice(starts, limit, replace=False).tolist())
    for start_ns in starts:
        yield _build_cut(start_ns, lengths, None)


def _build_cut(start_ns: int, lengths: CutLengths, incident: Incident | None) -> Cut:
    return Cut(
        start_ns=start_ns,
        end_ns=start_ns + lengths.view_ns,
        reference_end_ns=start_ns + lengths.before_ns(REFERENCE_SHARE),
        incident=incident,
    )


def _create_rng(*names: str) -> np.random.Generator:
    return np.random.default_rng(list(hashlib.sha256("\0".join(names).encode()).digest()[:16]))


def write_cut(view: RecordingView, truth: RecordingTruth, cut: Cut, root: Path) -> Path:
    evidence = []
    if cut.incident is not None:
        evidence = [
            {name: value for name, value in row.items() if name not in ("episode", "incident")}
            for row in truth.rows("evidence")
            if row["incident"] == cut.incident.incident
        ]
    return _write_episode(view, cut, root, label_of_cut(view, cut), evidence)


def cut_view(
    view: RecordingView, root: Path, *, start_ns: int, end_ns: int, reference_end_ns: int, episode: str | None = None
) -> EpisodeView:
    """Write any window of a recording as an episode with an unknown label, and return its view.

    Parameters
    ----------
    root
        Folder of the dataset that gets the episode, for instance a temporary folder.
    start_ns, end_ns, reference_end_ns
        Half-open window, and the end of the part that is assumed to be healthy; UTC nanoseconds. The view contains only
        data that was available at `end_ns`.
    episode
        Id of the episode; derived from the window by default.

    Raises
    ------
    DataError
        The window is not in one segment, or the reference does not end in the window.
    """
    if not any(segment.start_ns <= start_ns < end_ns <= segment.end_ns for segment in view.segments):
        raise DataError(
            f"the window [{start_ns}, {end_ns}) must be in one segment of recording {view.recording}; choose another"
        )
    cut = Cut(start_ns=start_ns, end_ns=end_ns, reference_end_ns=reference_end_ns)
    label = label_of_cut(view, cut) | {"no_fault_kind": UNLABELLED, "verdict": "unknown"}
    return EpisodeView(_write_episode(view, cut, root, label, (), episode))


def _write_episode(
    view: RecordingView,
    cut: Cut,
    root: Path,
    label: Mapping[str, Any],
    evidence: Sequence[Mapping[str, Any]],
    episode: str | None = None,
) -> Path:
    episode = episode or cut.episode_id(view.recording)
    context = view.context.of_episode(
        episode, start_ns=cut.start_ns, end_ns=cut.end_ns, reference_end_ns=cut.reference_end_ns
    )
    with EpisodeWriter(root, episode, quick=True, added_tables=context.added_tables) as writer:
        for table in view.tables:
            writer.write_table(
                table, [select_available_rows(table, view.table(table, cut.start_ns, cut.end_ns), cut.end_ns)]
            )
        writer.write_context(context)
        writer.write_truth({**label, "episode": episode}, evidence, None)
        return writer.commit()


def label_of_cut(view: RecordingView, cut: Cut) -> dict[str, Any]:
    window = {"view_start": cut.start_ns, "view_end": cut.end_ns, "reference_end": cut.reference_end_ns}
    shared = {"profile": PROFILE, "workload": dict(view.context.workload), "host": {}, "clock_offsets": {}}
    if cut.incident is None:
        return {
            "no_fault_kind": "plain",
            "targets": [],
            "root_causes": [],
            "parameters": {},
            "verdict": "none",
            "seed": 0,
            **window,
            **shared,
        }
    row = cut.incident.as_row()
    del row["incident"]
    for name in ("first_manifest", "effective"):
        if row[name] is not None and row[name] >= cut.end_ns:
            row[name] = None
    return {**row, "no_fault_kind": None, **window, **shared}
