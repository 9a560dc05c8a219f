"""The steps that only HotelReservation needs."""

from __future__ import annotations

from faultset.collector.apps.hotel.reservations import Availability, Insert
from faultset.collector.apps.hotel.searches import CheckPassword, Nearby, PickBest

STEPS = (Nearby, PickBest, CheckPassword, Availability, Insert)
"""All steps of this application."""
