"""How much one attempt may take."""

from __future__ import annotations

from dataclasses import dataclass

from faultset.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class AttemptLimits:
    """What ends an attempt that has not answered."""

    steps: int = 30
    """Replies of the model that act; of an agent without a model calls of tools."""
    tokens: int = 500_000
    """Prompt and completion tokens of all requests together."""
    seconds: float = 900.0
    """Time in the model and in tools together."""
    cost_usd: float | None = None
    """US dollars by the price file."""

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("tokens", self.tokens), ("seconds", self.seconds)):
            if not value > 0:
                raise UsageError(f"a limit of {value:g} {name} leaves nothing to do; give one above 0")
        if self.cost_usd is not None and not self.cost_usd > 0:
            raise UsageError(f"a limit of {self.cost_usd:g} US dollars leaves nothing to do; give one above 0")
