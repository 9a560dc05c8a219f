"""K-sigma names the series that moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from faultset.baselines.methods.controls import SeriesStopped
from faultset.baselines.methods.rules.metric_rules import KSigma

SECOND = 1_000_000_000


def test_k_sigma_names_series_that_rose_or_stopped(example, faulty, alter) -> None:
    label = example.label(faulty)
    found = KSigma().detect(example.view(faulty))
    assert found.evidence[0].detail.endswith("up")

    def silence(rows: pa.Table) -> pa.Table:
        late = rows["time"].cast("int64").to_numpy() >= label.inject_start_ns
        gone = np.array([name == "rate" for name in rows["service"].to_pylist()])
        return rows.filter(pa.array(~(late & gone)))

    healthy = next(episode for episode in example.episodes if not example.label(episode).fault)
    onset = example.view(healthy).reference[1] + 20 * SECOND
    label = replace(label, inject_start_ns=onset)
    view = alter(healthy, {"metrics": silence})
    found = KSigma().detect(view)
    assert found.alarm_ns is not None
    assert found.alarm_ns > onset
    assert {(item.service, item.detail) for item in found.evidence} == {("rate", "series stopped")}
    stopped = SeriesStopped().localize(view, found.alarm_ns)
    assert stopped.ordered == ("rate",)
    assert stopped.scores["rate"] > 0.9
