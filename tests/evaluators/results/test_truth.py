"""The truth of an episode, as scoring needs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faultset.datasets import RootCause
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.labels import LabelledFault, LabelledInterval
from faultset.evaluators.results.truth import build_truth

SECOND = 1_000_000_000


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
    truth = build_truth(replace(dataset.label(episode), root_causes=causes), dataset.view(episode).context)
    assert truth.pod_causes == expected
    assert replace(truth, pod_causes=()).causes == (("geo",),)


def interval(begin_s: float, end_s: float, onset_ns: int) -> LabelledInterval:
    begin_ns, end_ns = (onset_ns + round(at_s * SECOND) for at_s in (begin_s, end_s))
    return LabelledInterval(begin_ns=begin_ns, end_ns=end_ns, first_intensity=1.0, last_intensity=1.0)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([[(0, 30)]], []),
        ([[(0, 3), (5, 8), (10, 30)]], [(3, 5), (8, 10)]),
        ([[(0, 3), (5, 8)], [(2, 5), (7, 9)]], [(9, None)]),
        ([[(0, 3), (5, 30)], []], []),
        ([], []),
    ],
    ids=["always there", "comes and goes", "one covers the other", "one is not recorded", "none is recorded"],
)
def test_pauses_are_the_times_after_the_onset_in_which_no_fault_acts(example_dataset, times, expected) -> None:
    dataset = open_dataset(example_dataset)
    episode = next(name for name in dataset.episodes if dataset.label(name).fault)
    label = dataset.label(episode)
    onset_ns = label.inject_start_ns
    assert onset_ns is not None
    faults = tuple(
        LabelledFault(
            fault=f"f{number}",
            target="geo",
            parameters={},
            inject_start_ns=onset_ns,
            intervals=tuple(interval(begin_s, end_s, onset_ns) for begin_s, end_s in found),
        )
        for number, found in enumerate(times)
    )
    truth = build_truth(replace(label, faults=faults), dataset.view(episode).context)
    ends = [label.view_end_ns if end is None else onset_ns + end * SECOND for _, end in expected]
    assert truth.pauses == tuple(
        (onset_ns + begin * SECOND, end) for (begin, _), end in zip(expected, ends, strict=True)
    )
