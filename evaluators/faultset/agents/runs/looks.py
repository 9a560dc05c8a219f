"""What an agent looked at in a run: the tools that it called, and the services that it asked about and was shown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.agents.trajectories.model import Trajectory, text_of

SUBMISSION = "submit"
_LONGEST = 200_000
"""Characters of an observation that are looked at."""


@dataclass(frozen=True, kw_only=True)
class RunLook:
    """What one run looked at."""

    calls: Mapping[str, int]
    """Tool -> calls, without submissions."""
    asked: frozenset[str]
    """Candidates that a call names, alone or as one of their pods."""
    shown: frozenset[str]
    """Candidates that an observation names."""


def look_of(trajectory: Trajectory, candidates: Sequence[str]) -> RunLook:
    """Read from a trajectory what was looked at.

    Parameters
    ----------
    candidates
        Services of the system; a list of all of them, as `describe_system` gives it, shows none.
    """
    calls: Counter[str] = Counter()
    asked: set[str] = set()
    shown: set[str] = set()
    pattern = _pattern(candidates)
    for step in trajectory.agent_steps:
        made = {call.tool_call_id: call for call in step.tool_calls or ()}
        for call in made.values():
            if not call.function_name.startswith(SUBMISSION):
                calls[call.function_name] += 1
                asked |= _named(json.dumps(call.arguments, ensure_ascii=False), pattern)
        for result in step.observation.results if step.observation else ():
            named = _named(text_of(result.content)[:_LONGEST], pattern)
            shown |= named if named < {*candidates} else set()
    return RunLook(calls=dict(calls), asked=frozenset(asked), shown=frozenset(shown))


def _pattern(candidates: Sequence[str]) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in sorted({*candidates}, key=lambda name: (-len(name), name)))
    return re.compile(rf"(?<![\w-])({names or '(?!)'})(?:-[a-z0-9]{{6,10}}-[a-z0-9]{{5}})?(?![\w-])")


def _named(text: str, pattern: re.Pattern[str]) -> set[str]:
    return {match[1] for match in pattern.finditer(text)}
