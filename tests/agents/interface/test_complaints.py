from __future__ import annotations

from pathlib import Path

import pytest

from faultset.agents.interface.complaints import compose_complaint
from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


@pytest.mark.parametrize(
    ("episode", "complaint"),
    [
        ("01084746c57a", "since about 02:10 UTC, GET /recommendations often fails"),
        ("252926d80e7a", "since about 02:15 UTC, GET /hotels is slow"),
        ("0d3c530732fb", "since about 02:15 UTC, something seems to be wrong"),
    ],
)
def test_a_complaint_has_an_approximate_time_and_what_clients_saw(episode: str, complaint: str) -> None:
    opened = open_dataset(SAMPLE)[episode]
    onset_ns = opened.label.onset_ns or opened.context.reference_end_ns
    assert compose_complaint(opened.view, onset_ns + 20 * SECOND_NS) == complaint
