"""Compare answers of localizers on episodes before and after an export as OTLP and `import telemetry`.

    python benchmarks/external/reimported_telemetry.py DATASET [--episodes 2] [--baselines baro,nsigma,...]
    python benchmarks/external/reimported_telemetry.py datasets/core-2 --recording 45281b2a9972

With `--recording`, episodes are cut out of the recording as in an evaluation. Prints the AC@1 of each method on both,
and whether all values are equal.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import yaml

from faultset.datasets import Dataset, create_version, export_dataset, open_dataset
from faultset.datasets.imports.telemetry.run import TelemetryOptions, import_telemetry
from faultset.evaluators import evaluate
from faultset.evaluators.recordings.cut_episodes import choose_lengths

BASELINES = "max-z,nsigma,baro,circa,micro-rca,pdiagnose,combined-evidence,tracerca,spectrum,loudest-log,series-stopped"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Localization before and after an export and a generic import.")
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--recording", help="recording to cut episodes out of")
    parser.add_argument("--baselines", default=BASELINES)
    options = parser.parse_args()
    methods = options.baselines.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source = open_dataset(options.dataset)
        if options.recording:
            recording = source.recording(options.recording)
            lengths = asdict(choose_lengths([recording]))
            source = recording.episodes(**lengths, healthy=0, out=folder / "cuts")
        chosen = [episode for episode in source.episodes if source.label(episode).is_faulty][: options.episodes]
        results = []
        for episode in chosen:
            original, imported = _reimport(source, episode, folder)
            results.append(
                pd.concat([_score(original, methods, "original"), _score(imported, methods, "imported")], axis=1)
            )
    table = pd.concat(results).groupby(level=[0, 1], sort=False).mean()
    print("| method | protocol | original | imported |\n|---|---|---:|---:|")
    for (method, protocol), row in table.iterrows():  # type: ignore[misc]
        print(f"| {method} | {protocol} | {row['original']:.3f} | {row['imported']:.3f} |")
    print(f"\n{len(chosen)} episodes; equal AC@1: {bool((table['original'] == table['imported']).all())}")


def _reimport(source: Dataset, episode: str, folder: Path) -> tuple[Path, Path]:
    """Return a dataset of one episode, and the dataset of the same telemetry read back."""
    original, texts, imported = (folder / f"{episode}-{name}" for name in ("original", "otlp", "imported"))
    shutil.copytree(source.path(episode), original / "episodes" / episode)
    create_version(original, provenance=dict(source.provenance))
    export_dataset("otlp-json", original, texts, max_bytes=None)
    label = source.label(episode)
    assert label.onset_ns is not None  # the episode has a fault
    incident = {
        "name": episode,
        "start": str(label.onset_ns),
        "end": str(label.view_end_ns),
        "healthy_until": str(label.reference_end_ns),
        "before": f"{(label.onset_ns - label.view_start_ns) / 1e9:.9f}s",
        "cause": [cause.service for cause in label.root_causes],
    }
    incidents = folder / f"{episode}.yaml"
    incidents.write_text(yaml.safe_dump({"incidents": [incident]}))
    context = source.view(episode).context
    mapping = folder / f"{episode}-mapping.yaml"
    mapping.write_text(yaml.safe_dump({"app": context.app, "calls": [list(call) for call in context.calls]}))
    options = TelemetryOptions(incidents=incidents, mapping=mapping, redact=False)
    import_telemetry([texts / episode], imported, options)
    return original, imported


def _score(dataset: Path, methods: list[str], name: str) -> pd.Series:
    result = evaluate(dataset, methods, tasks=["localization"], out=dataset.parent / f"{dataset.name}-results")
    values = result.episode_values("localization")
    values = values[values["metric"] == "ac1"]
    return values.groupby(["baseline", "protocol"])["value"].mean().rename(name)


if __name__ == "__main__":
    main()
