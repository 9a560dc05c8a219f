"""Paths, ports and images in the containers of an application."""

from __future__ import annotations

SPEC_PATH = "/etc/faultset/app.yaml"
"""The application's spec; FAULTSET_APP overrides the path."""

DATA_PATH = "/data/db"
"""The files of a database; FAULTSET_DATA overrides the path."""

METRICS_PORT = 9464
"""Port on which services export their metrics."""

CREDENTIALS_PATH = "/var/run/secrets/faultset"
"""Passwords, one per file; FAULTSET_CREDENTIALS overrides the path."""

ADMINISTRATOR = "administrator"
"""File with the administrator's password, only in the store's container."""

BUILD_SEED = "build-seed"
"""File with the number that decides which build has which defect, in the containers of services."""

APPLICATION = "application"
"""File with the application's password in the store's container; in other containers, it is named after the store."""

SPANS_PORT = 4318
"""Port of the span receiver (OTLP over HTTP)."""

APP_REPOSITORY = "faultset/app"
"""Image with faultset's programs."""

PAUSE_REPOSITORY = "faultset/pause"
"""Image of the pause container."""
