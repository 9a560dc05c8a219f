"""The steps that HotelReservation needs and no other application."""

from __future__ import annotations

from faultset.collector.apps.hotel.reservations import Availability, Insert
from faultset.collector.apps.hotel.searches import CheckPassword, Nearby, PickBest

STEPS = (Nearby, PickBest, CheckPassword, Availability, Insert)
"""All of them."""
