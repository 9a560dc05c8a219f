"""Names of pods, which say whose they are."""

from __future__ import annotations

import re

_OWN_PART = re.compile(r"(-[a-z0-9]{5,10}-[a-z0-9]{5}|-\d+)$")


def workload_of_pod(pod: str) -> str:
    """Return the workload of a pod by its name.

    Examples
    --------
    >>> workload_of_pod("mongodb-geo-7d5f6d4c9b-x2k4f"), workload_of_pod("mysql-0"), workload_of_pod("geo")
    ('mongodb-geo', 'mysql', 'geo')
    """
    return _OWN_PART.sub("", pod)
