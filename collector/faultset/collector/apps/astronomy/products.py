"""The catalogue: ten products, by which the original's requests are made."""

from __future__ import annotations

from typing import Any

_ROWS = (
    ("OLJCESPC7Z", "National Park Foundation Explorascope", 101.96, ("telescopes",)),
    ("66VCHSJNUP", "Starsense Explorer Refractor Telescope", 349.95, ("telescopes",)),
    ("1YMWWN1N4O", "Eclipsmart Travel Refractor Telescope", 129.95, ("telescopes", "travel")),
    ("L9ECAV7KIM", "Lens Cleaning Kit", 21.95, ("accessories",)),
    ("2ZYFJ3GM2N", "Roof Binoculars", 209.95, ("binoculars",)),
    ("0PUK6V6EV0", "Solar System Color Imager", 175.0, ("accessories", "telescopes")),
    ("LS4PSXUNUM", "Red Flashlight", 57.08, ("accessories", "flashlights")),
    ("9SIQT8TOJO", "Optical Tube Assembly", 3599.0, ("accessories", "telescopes", "assembly")),
    ("6E92ZMYYFZ", "Solar Filter", 69.95, ("accessories", "telescopes")),
    ("HQTGWGPNH4", "The Comet Book", 0.99, ("books",)),
)

PRODUCTS: dict[str, dict[str, Any]] = {
    identity: {"id": identity, "name": name, "picture": f"{identity}.jpg", "price": price, "categories": categories}
    for identity, name, price, categories in _ROWS
}
"""Products by their identity; prices in dollars."""

RATES = {"USD": 1.1305, "EUR": 1.0, "JPY": 126.4, "GBP": 0.85970, "CHF": 1.1360, "CAD": 1.5128, "INR": 79.4320}
"""What a euro costs in other currencies."""
