"""Labels as they are written and read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.labels import Label, read_label
from faultset.datasets.validation import find_label_problems

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


SEVERAL: dict[str, Any] = {
    "fault": "cpu-hog + leak",
    "targets": ["geo", "rate"],
    "root_causes": [
        {"kind": "Pod", "name": name, "service": name, "accepted": [name], "metric": None} for name in ("geo", "rate")
    ],
    "system_level": "Hardware + Application",
    "fault_type": "Operation Error + Code Defect",
    "parameters": {"geo": {"share": 0.6}, "rate": {}},
}


def test_every_fault_of_an_episode_comes_back_to_the_nanosecond(tmp_path: Path) -> None:
    write_example_dataset(tmp_path, episodes=2, seed=1, baseline_s=20, fault_s=20)
    dataset = open_dataset(tmp_path)
    episode = next(one for one in dataset.episodes if dataset.label(one).fault)
    assert dataset.label(episode).faults == ()
    assert dataset.label(episode).fault_names == (dataset.label(episode).fault,)
    onset_ns = dataset.label(episode).inject_start_ns
    assert onset_ns is not None
    faults = [
        {"fault": fault, "target": target, "parameters": {"share": 0.6}, "inject_start": onset_ns + place}
        for place, (fault, target) in enumerate((("cpu-hog", "geo"), ("leak", "rate")))
    ]
    folder = tmp_path / "episodes" / episode
    with EpisodeWriter(tmp_path / "new", episode) as writer:
        row = dataset.label(episode).as_row() | SEVERAL | {"faults": faults}
        del row["episode"]
        writer.write_context(dataset.view(episode).context)
        writer.write_truth(row, [], folder / "truth" / "journal.jsonl")
        writer.commit()
    label = read_label(tmp_path / "new" / "episodes" / episode)
    assert [(one.fault, one.target, one.inject_start_ns) for one in label.faults] == [
        ("cpu-hog", "geo", onset_ns),
        ("leak", "rate", onset_ns + 1),
    ]
    assert dict(label.faults[0].parameters) == {"share": 0.6}
    assert label.problems == (("cpu-hog", "geo"), ("leak", "rate"))
    context = dataset.view(episode).context
    assert list(find_label_problems(context, label)) == []
    other = replace(label, faults=label.faults[:1])
    assert list(find_label_problems(context, other)) == [
        'the fault "cpu-hog + leak" does not match the names of the individual faults',
        "the targets do not match the targets of the individual faults",
    ]
    assert Label.from_row(label.as_row(), origin="label.parquet") == label
