"""Services ranked by the scores of their series."""

from __future__ import annotations

import numpy as np

from faultset.baselines.features.metric_alarms import rank_by_series


def test_services_stand_where_their_first_series_stands() -> None:
    series = (("cart", "cpu"), ("cart", "mem"), ("front", "lat"), ("db", "rps"))
    ranking = rank_by_series(np.array([18.3, 1.4, 18.2, 81.8]), series, ("cart", "db", "front"), detail="z")
    assert ranking.ordered == ("db", "cart", "front")
    assert [item.subject for item in ranking.evidence] == ["rps", "cpu", "lat", "mem"]
