"""Rows of the metrics table in the notation of Prometheus."""

from __future__ import annotations

import json

import numpy as np


def series_labels(service: str, pod: str, container: str, labels: str) -> dict[str, str]:
    """Return the labels of a row of the metrics table.

    Parameters
    ----------
    labels
        Other labels as JSON; those with the name of a column get the prefix `label_`.

    Examples
    --------
    >>> series_labels("geo", "geo-1", "", '{"code":"200","pod":"x"}')
    {'service': 'geo', 'pod': 'geo-1', 'code': '200', 'label_pod': 'x'}
    """
    columns = {"service": service, "pod": pod, "container": container}
    pairs = {name: value for name, value in columns.items() if value}
    for name, value in json.loads(labels or "{}").items():
        pairs[f"label_{name}" if name in columns else name] = value if isinstance(value, str) else json.dumps(value)
    return pairs


def sample_text(value: float) -> str:
    """Return a sample as Prometheus writes it.

    >>> sample_text(2.0), sample_text(0.5), sample_text(float("inf"))
    ('2', '0.5', '+Inf')
    """
    if np.isfinite(value):
        return repr(float(value)).removesuffix(".0")
    return "NaN" if np.isnan(value) else "+Inf" if value > 0 else "-Inf"
