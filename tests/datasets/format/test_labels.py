"""Labels as they are read: also those whose parameters have a key of an older release."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.labels import Label

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


def test_the_sample_which_has_the_old_key_is_read_under_the_new_one() -> None:
    dataset = open_dataset(SAMPLE)
    labels = [dataset.label(episode) for episode in dataset.episodes]
    disturbed = [label.parameters for label in labels if label.no_fault_kind == "disturbed"]
    assert [parameters["harmless_change"] for parameters in disturbed]
    assert not [parameters for parameters in disturbed if "disturbance" in parameters]


@pytest.mark.parametrize(
    ("no_fault_kind", "read_as"), [("disturbed", "harmless_change"), ("sham", "disturbance"), (None, "disturbance")]
)
def test_only_the_label_of_a_disturbed_episode_has_the_old_key_renamed(no_fault_kind: str | None, read_as: str) -> None:
    dataset = open_dataset(SAMPLE)
    label = dataset.label(dataset.episodes[0])
    row = {field.name.removesuffix("_ns"): getattr(label, field.name) for field in fields(label)}
    row |= {"no_fault_kind": no_fault_kind, "parameters": {"disturbance": "rollout"}, "root_causes": []}
    assert dict(Label.from_row(row, origin="label.parquet").parameters) == {read_as: "rollout"}
