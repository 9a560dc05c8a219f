"""Specs of applications that a cluster already runs: names and relations only."""

from __future__ import annotations

from importlib.resources import files

ASTRONOMY_SHOP = files(__name__) / "astronomy-shop.yaml"
HOTEL_DEATHSTARBENCH = files(__name__) / "hotel-deathstarbench.yaml"
SOCIAL_DEATHSTARBENCH = files(__name__) / "social-deathstarbench.yaml"
TIDB_PINGCAP = files(__name__) / "tidb-pingcap.yaml"
