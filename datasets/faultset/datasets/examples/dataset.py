"""Writing a small synthetic dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from faultset.datasets.examples.scenario import CALLS, SERVICES, Scenario
from faultset.datasets.examples.telemetry import telemetry_tables
from faultset.datasets.examples.truth import evidence_of, label_of
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.versions import create_version

_WITHOUT_INTERVAL = ("spans", "logs", "events", "requests")


def write_example_dataset(
    root: Path | str, *, episodes: int = 4, seed: int = 0, baseline_s: int = 60, fault_s: int = 60
) -> str:
    """Write a synthetic dataset and its version 1.0.0, and return the version.

    Every second episode has a fault that shows on its target: CPU and latency rise, spans are slow and fail, the
    log complains, and callers feel it. The provenance says that the data is synthetic: good for trying code, not
    for judging methods.

    Parameters
    ----------
    root
        Dataset folder, made when it does not exist.
    episodes
        How many; odd ones (the second, the fourth, ...) have a fault.
    seed
        Equal seeds write equal episodes.
    baseline_s, fault_s
        Length of the two halves of the view in seconds, at least 10 each.
    """
    root = Path(root)
    sequences = np.random.SeedSequence(seed).spawn(episodes)
    for number, sequence in enumerate(sequences):
        _write(Scenario(number, np.random.default_rng(sequence), baseline_s, fault_s), root)
    provenance = {"synthetic": True, "generator": "faultset.datasets.examples", "seed": seed}
    return create_version(root, provenance=provenance)


def _write(scenario: Scenario, root: Path) -> None:
    with EpisodeWriter(root, scenario.id) as writer:
        for table, rows in telemetry_tables(scenario).items():
            writer.write_table(table, [rows])
        writer.write_context(
            EpisodeContext(
                episode=scenario.id,
                app="example",
                platform="synthetic",
                view_start_ns=scenario.start,
                view_end_ns=scenario.end,
                reference_end_ns=scenario.reference_end,
                source_intervals_s={"metrics": 1.0, "objects": 10.0} | dict.fromkeys(_WITHOUT_INTERVAL, None),
                services=SERVICES,
                calls=CALLS,
                workload_entry="frontend",
            )
        )
        writer.write_truth(label_of(scenario), evidence_of(scenario), None)
        writer.commit()
