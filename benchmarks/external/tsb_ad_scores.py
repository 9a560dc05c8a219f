"""Compare VUS-PR of our detectors on series of TSB-AD with the values that its authors publish for each series.

    python benchmarks/external/tsb_ad_scores.py TABLE FILE...

TABLE is `benchmark_exp/benchmark_eval_results/multi_mergedTable_VUS-PR.csv` of TheDatumOrg/TSB-AD, FILE a series in
TSB-AD's layout. The protocol is that of the table: the steps before `tr` are for training, the whole series is scored
at 250 thresholds, and the buffer is half of the period of the first variable. Our detectors do not score training
steps, so these get the lowest score. The score of a window counts for all of its steps. LOF of scikit-learn with
TSB-AD's setting shows how closely the protocol is reproduced.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import LocalOutlierFactor

from faultset.baselines import get_detector
from faultset.core.times import SECOND_NS
from faultset.datasets import EpisodeView, open_dataset
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.recordings.cuts import cut_view
from faultset.evaluators.scoring.alarms import compute_range_volumes

PAIRS = {"isolation-forest": "IForest", "lof": "LOF", "mcd": "MCD", "pca-spe": "PCA", "max-z-detector": ""}
"""Our detector -> TSB-AD's method with the same idea; empty if there is none."""
REPEATED = "LOF of scikit-learn"
NEIGHBOURS = 50
"""TSB-AD's setting of LOF for several variables."""
STEP_NS = 60 * SECOND_NS
THRESHOLDS, LAGS, USED_STEPS, LONGEST, DEFAULT_PERIOD = 250, 400, 20_000, 300, 125

Floats = npt.NDArray[np.float64]


def find_period(values: Floats) -> int:
    """Return the lag of the highest peak of the autocorrelation, as TSB-AD's `find_length_rank`."""
    x = values[:USED_STEPS] - values[:USED_STEPS].mean()
    spectrum = np.fft.rfft(x, 2 * len(x))
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[3 : LAGS + 1]
    inner = correlation[1:-1]
    peaks = np.flatnonzero((inner > correlation[:-2]) & (inner > correlation[2:])) + 1
    if not len(peaks):
        return DEFAULT_PERIOD
    best = int(peaks[np.argmax(correlation[peaks])])
    return best + 3 if 3 <= best <= LONGEST else DEFAULT_PERIOD


def score(labels: npt.NDArray[np.bool_], scores: Floats, period: int) -> float:
    """Return VUS-PR at 250 thresholds, with zones of up to half the period on both sides of an anomaly."""
    ordered = np.sort(scores)[::-1]
    cuts = np.unique(ordered[np.linspace(0, len(scores) - 1, THRESHOLDS).astype(int)])
    return compute_range_volumes(labels, np.searchsorted(cuts, scores, side="right"), period // 2).pr


def open_series(file: Path, folder: Path, training: int) -> EpisodeView:
    """Return a series as an episode whose reference is the training part."""
    shutil.copy(file, folder / file.name)
    import_dataset("tsb-ad", folder, folder / "series")
    (recording,) = open_dataset(folder / "series").recordings()
    start_ns, end_ns = recording.view.window
    healthy_ns = start_ns + training * STEP_NS
    return cut_view(recording.view, folder / "cut", start_ns=start_ns, end_ns=end_ns, reference_end_ns=healthy_ns)


def detect(name: str, view: EpisodeView, length: int) -> Floats:
    """Return the score of the window that each step belongs to; training steps get the lowest score."""
    detection = get_detector(name).fit([]).detect(view)
    context = view.context
    ends = np.array([context.reference_end_ns, *detection.times_ns])
    steps = np.clip((ends - context.view_start_ns) // STEP_NS, 0, length)
    scores = np.full(length, detection.scores.min(initial=np.inf))
    for start, end, value in zip(steps[:-1], steps[1:], detection.scores, strict=True):
        scores[start:end] = value
    return scores


def compare(file: Path, published: dict[str, str]) -> Iterator[tuple[str, float, float]]:
    """Yield method, our VUS-PR and the published one (NaN without one) on a series."""
    match = re.search(r"_tr_(\d+)_", file.name)
    assert match is not None
    values = np.loadtxt(file, delimiter=",", skiprows=1)
    labels, period = values[:, -1] > 0, find_period(values[:, 0])
    repeated = -LocalOutlierFactor(NEIGHBOURS).fit(values[:, :-1]).negative_outlier_factor_
    yield REPEATED, score(labels, repeated, period), float(published["LOF"])
    with tempfile.TemporaryDirectory() as scratch:
        view = open_series(file, Path(scratch), int(match[1]))
        for name, other in PAIRS.items():
            value = score(labels, detect(name, view, len(labels)), period)
            yield name, value, float(published[other]) if other else np.nan


def main() -> None:
    """Print a row for each method."""
    parser = argparse.ArgumentParser(description="VUS-PR on series of TSB-AD, next to the published values.")
    parser.add_argument("table", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    with options.table.open(encoding="utf-8") as lines:
        published = {row["file"]: row for row in csv.DictReader(lines)}
    results: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for file in options.files:
        for name, value, other in compare(file, published[file.name]):
            results[name].append((value, other))
    print("| method | VUS-PR by series | mean | published by series | mean |\n|---|---|---:|---|---:|")
    for name, pairs in results.items():
        ours, theirs = zip(*pairs, strict=True)
        print(f"| {name} | {format_values(ours)} | {format_values(theirs)} |")


def format_values(values: Sequence[float]) -> str:
    """Return the values and their mean as two cells; empty without values."""
    if np.isnan(values).any():
        return " | "
    return f"{', '.join(f'{value:.2f}' for value in values)} | {np.mean(values):.2f}"


if __name__ == "__main__":
    main()
