"""What tokens cost, from a file in which every price has a date."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultset.core.errors import DataError
from faultset.core.printable import printable
from faultset.core.reading.documents import validation_sentence
from faultset.core.reading.regular_files import read_regular

_MOST_BYTES = 1 << 20
Dollars = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class ModelPrice(BaseModel):
    """US dollars for a million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: Annotated[str, Field(pattern=r"^\d{4}-\d\d(-\d\d)?$")]
    """When it was published."""
    prompt: Dollars
    """Of prompt tokens."""
    cached: Dollars | None = None
    """Of prompt tokens that come from the server's cache; as the others where it is not known."""
    completion: Dollars
    """Of completion tokens."""

    def cost_usd(self, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float:
        """Return what one request costs; `prompt_tokens` holds the cached ones.

        Examples
        --------
        >>> ModelPrice(as_of="2026-06", prompt=2.0, cached=0.5, completion=8.0).cost_usd(1_000_000, 400_000, 100_000)
        2.2
        """
        cached = min(cached_tokens, prompt_tokens)
        of_cached = self.prompt if self.cached is None else self.cached
        dollars = (prompt_tokens - cached) * self.prompt + cached * of_cached + completion_tokens * self.completion
        return round(dollars / 1e6, 9)


class _PriceFile(BaseModel):
    about: str = ""
    models: dict[str, ModelPrice]


def read_prices(path: Path | None = None) -> dict[str, ModelPrice]:
    """Return the price of every model in a file, or in the one that comes with faultset.

    Raises
    ------
    DataError
        The file cannot be read, or is of another form.
    """
    if path is None:
        content, origin = resources.files("faultset.agents.models").joinpath("prices.json").read_bytes(), "prices.json"
    else:
        content, origin = read_regular(path, limit_bytes=_MOST_BYTES), printable(path)
    try:
        return _PriceFile.model_validate(json.loads(content)).models
    except ValidationError as problem:
        raise DataError(f"{origin}: {validation_sentence(problem)}; see docs/agents.md for the form") from None
    except (ValueError, RecursionError):
        raise DataError(f"{origin} is not JSON; see docs/agents.md for the form") from None
