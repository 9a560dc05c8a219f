"""Log lines of the Astronomy Shop's services: one shape for each language, all of which are read back."""

from __future__ import annotations

import pytest

from faultset.collector.apps import load_app
from faultset.collector.apps.astronomy.persona import PERSONA
from faultset.datasets.telemetry_formats.log_lines import parse_line

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TEXT = f"could not charge the card trace_id={TRACE} span_id={SPAN}"
SERVICES = load_app("astronomy").services


@pytest.mark.parametrize("service", [name for name, one in SERVICES.items() if one.location])
@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_every_service_writes_lines_that_are_read_back(service: str, level: str) -> None:
    line = PERSONA.format_line(1_758_739_269.830218, level, SERVICES[service].location, TEXT)  # type: ignore[arg-type]
    found = parse_line(line)
    assert (found.level, found.trace_id, found.span_id) == (level, TRACE, SPAN)
    assert "could not charge the card" in found.message


def test_lines_look_as_those_of_their_languages() -> None:
    def line(location: str) -> str:
        return PERSONA.format_line(1_758_739_269.830218, "warning", location, "text")

    assert line("checkout/main.go") == (
        '{"message": "text", "severity": "warn", "timestamp": "2025-09-24T18:41:09.830Z"}'
    )
    assert line("payment/charge.js").startswith('{"level": 40, "time": 1758739269830, "pid": ')
    assert line("cart/cart.cartstore.ValkeyCartStore") == "warn: cart.cartstore.ValkeyCartStore[0] text"
    assert line("ad/oteldemo.AdService") == "2025-09-24 18:41:09,830 WARN oteldemo.AdService - text"
    assert line("quote/routes.php") == "[2025-09-24T18:41:09.830218+00:00] quote.WARN: text"
