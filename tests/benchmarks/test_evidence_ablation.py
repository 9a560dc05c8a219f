"""The method without a source of evidence differs from the whole one."""

from __future__ import annotations

from pathlib import Path

from benchmarks.evidence_ablation import SOURCES, WHOLE, localize_without_sources
from faultset.baselines.methods.localization.combined_evidence import CombinedEvidence
from faultset.datasets import open_dataset

SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"


def test_each_copy_lacks_its_source() -> None:
    dataset = open_dataset(SAMPLE)
    episode = next(name for name in dataset.episodes if dataset.label(name).verdict == "manifest")
    view, onset_ns = dataset.view(episode), dataset.label(episode).inject_start_ns
    assert onset_ns is not None
    scores = dict(localize_without_sources(view, onset_ns))
    assert scores.keys() == {WHOLE, *SOURCES}
    assert scores[WHOLE] == CombinedEvidence().localize(view, onset_ns).scores
    assert scores["metrics"] != scores[WHOLE]
    assert sum(scores["metrics"].values()) < sum(scores[WHOLE].values())
