"""Every registered format of recorded runs keeps what formats promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.agents.formats.contract import agent_format_names
from faultset.agents.testing import check_agent_format

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("name", agent_format_names())
def test_it_passes_the_check_of_formats(name: str) -> None:
    check_agent_format(name, SAMPLES / name)
