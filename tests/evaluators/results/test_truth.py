"""The truth of an episode, as scoring needs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faultset.datasets import RootCause
from faultset.datasets.dataset import open_dataset
from faultset.evaluators.results.truth import truth_of


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ({"kind": "Pod", "name": "geo-5d9-x2k"}, ("geo-5d9-x2k",)),
        ({"kind": "Pod", "name": "geo"}, ()),
        ({"kind": "Deployment", "name": "geo-5d9-x2k"}, ()),
    ],
    ids=["a pod by its name", "any pod of the service", "another kind"],
)
def test_the_truth_names_a_pod_only_by_its_own_name(example_dataset, cause, expected) -> None:
    dataset = open_dataset(example_dataset)
    episode = next(name for name in dataset.episodes if dataset.label(name).fault)
    causes = (RootCause(service="geo", accepted=("geo",), **cause),)
    truth = truth_of(replace(dataset.label(episode), root_causes=causes), dataset.view(episode).context)
    assert truth.pod_causes == expected
    assert replace(truth, pod_causes=()).causes == (("geo",),)
