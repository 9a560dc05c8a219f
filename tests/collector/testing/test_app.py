"""Every application that is installed passes the shipped check, and a wrong one does not."""

from __future__ import annotations

import pytest

from faultset.collector.apps import app_names, load_app
from faultset.collector.testing import check_app


@pytest.mark.parametrize("name", app_names())
def test_an_installed_application_passes(name: str) -> None:
    assert check_app(name).name == name


def test_a_database_without_a_claim_is_found() -> None:
    hotel = load_app("hotel")
    services = {**hotel.services, "mongodb-geo": hotel.services["mongodb-geo"].model_copy(update={"claim": None})}
    with pytest.raises(AssertionError, match="database mongodb-geo has no claim"):
        check_app(hotel.model_copy(update={"services": services}))
