"""What tokens cost, from a file with a date."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelPrice:
    """US dollars for a million tokens of one model."""

    prompt: float
    cached: float
    """Prompt tokens that come from the server's cache."""
    completion: float

    def cost_usd(self, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float:
        """Return what one request costs; `prompt_tokens` holds the cached ones."""
        cached = min(cached_tokens, prompt_tokens)
        fresh = prompt_tokens - cached
        return (fresh * self.prompt + cached * self.cached + completion_tokens * self.completion) / 1e6
