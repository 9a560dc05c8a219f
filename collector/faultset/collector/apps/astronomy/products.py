"""Advertised products and exchange rates. The catalogue of all products is a ConfigMap."""

from __future__ import annotations

from typing import Any

ADVERTISED: tuple[dict[str, Any], ...] = (
    {"id": "OLJCESPC7Z", "name": "National Park Foundation Explorascope", "categories": ("telescopes",)},
    {"id": "66VCHSJNUP", "name": "Starsense Explorer Refractor Telescope", "categories": ("telescopes",)},
    {"id": "1YMWWN1N4O", "name": "Eclipsmart Travel Refractor Telescope", "categories": ("telescopes", "travel")},
    {"id": "L9ECAV7KIM", "name": "Lens Cleaning Kit", "categories": ("accessories",)},
    {"id": "2ZYFJ3GM2N", "name": "Roof Binoculars", "categories": ("binoculars",)},
    {"id": "0PUK6V6EV0", "name": "Solar System Color Imager", "categories": ("accessories", "telescopes")},
    {"id": "LS4PSXUNUM", "name": "Red Flashlight", "categories": ("accessories", "flashlights")},
    {"id": "9SIQT8TOJO", "name": "Optical Tube Assembly", "categories": ("accessories", "telescopes", "assembly")},
    {"id": "6E92ZMYYFZ", "name": "Solar Filter", "categories": ("accessories", "telescopes")},
    {"id": "HQTGWGPNH4", "name": "The Comet Book", "categories": ("books",)},
)
"""The advertised products with their categories."""

RATES = {"USD": 1.1305, "EUR": 1.0, "JPY": 126.4, "GBP": 0.85970, "CHF": 1.1360, "CAD": 1.5128, "INR": 79.4320}
"""Price of a euro in other currencies."""
