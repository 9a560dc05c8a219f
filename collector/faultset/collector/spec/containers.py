"""What the containers of an application find where."""

from __future__ import annotations

SPEC_PATH = "/etc/faultset/app.yaml"
"""The application's spec; the environment variable FAULTSET_APP names another place."""

DATA_PATH = "/data/db"
"""The files of a database; the environment variable FAULTSET_DATA names another place."""

METRICS_PORT = 9464
"""Port on which services export their metrics."""

CREDENTIALS_PATH = "/var/run/secrets/faultset"
"""Passwords, one in each file; the environment variable FAULTSET_CREDENTIALS names another place."""

ADMINISTRATOR = "administrator"
"""File with the password of a store's administrator, in the store's container only."""

BUILD_SEED = "build-seed"
"""File with the number that decides which build has which defect, in the containers of services."""

APPLICATION = "application"
"""File with the password of the application's account, in the store's container; elsewhere it has the store's name."""

SPANS_PORT = 4318
"""Port on which spans are received (OTLP over HTTP)."""

APP_REPOSITORY = "faultset/app"
"""Image with our programs."""

PAUSE_REPOSITORY = "faultset/pause"
"""Image that does nothing but wait."""
