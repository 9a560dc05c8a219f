"""Which agents an evaluation runs or replays, with which model and limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faultset.agents.registry import GROUP, agent_names, reference_agent
from faultset.agents.running.contract import Agent
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.storage import read_runs
from faultset.core.code.identity import plugin_identity
from faultset.core.errors import UsageError
from faultset.core.plugins import plugins
from faultset.core.suggestions import unknown_name
from faultset.evaluators.results.provenance import settings_hash

TRIALS = 3


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """With what agents are run."""

    trials: int = TRIALS
    """Attempts at each problem, of agents whose attempts can differ."""
    limits: AttemptLimits = field(default_factory=AttemptLimits)
    """Of one attempt."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise UsageError(f"{self.trials} trials give no answer; give at least 1")


@dataclass(frozen=True, kw_only=True)
class ChosenAgent:
    """An agent that is run, with what decides its answers."""

    agent: Agent
    label: str
    """Name in tables."""
    code: str
    """Distribution, version and hash of its code."""
    settings: str
    """Hash of what it is run with."""

    @property
    def trials_differ(self) -> bool:
        """Whether more than one attempt tells more than one."""
        return self.agent.stochastic or self.agent.needs_model


@dataclass(frozen=True, kw_only=True)
class AgentChoice:
    """Agents that are run, and runs that were made before."""

    run: tuple[ChosenAgent, ...] = ()
    replayed: tuple[tuple[Path, tuple[AgentRun, ...]], ...] = ()
    """Folder -> its runs."""

    @property
    def labels(self) -> list[str]:
        """Names in tables."""
        names = [chosen.label for chosen in self.run]
        return list(dict.fromkeys([*names, *(label_of(run) for _, runs in self.replayed for run in runs)]))


def choose_agents(given: Iterable[str | Path], settings: AgentSettings, taken: Sequence[str] = ()) -> AgentChoice:
    """Take names and folders of runs apart, and load what is named.

    Parameters
    ----------
    taken
        Names that methods in the same tables have.

    Raises
    ------
    UsageError
        A name is not known or taken, or an agent cannot be used.
    DataError
        A folder holds no runs.
    """
    run: list[ChosenAgent] = []
    replayed = []
    for one in dict.fromkeys(str(one) for one in given):
        if one in plugins(GROUP):
            run.append(_chosen(one, settings))
        elif Path(one).is_dir():
            folder = Path(one)
            replayed.append((folder, tuple(read_runs(folder))))
        else:
            raise unknown_name("agent or folder of runs", one, agent_names())
    choice = AgentChoice(run=tuple(run), replayed=tuple(replayed))
    clash = next((name for name in choice.labels if name in taken), None)
    if clash is not None:
        raise UsageError(f'an agent and a method are both called "{clash}"; leave one of them out')
    return choice


def _chosen(name: str, settings: AgentSettings) -> ChosenAgent:
    agent = reference_agent(name)
    what = {"agent": name, "version": agent.version, "limits": vars(settings.limits)}
    return ChosenAgent(
        agent=agent,
        label=agent.name,
        code=str(plugin_identity(plugins(GROUP)[name], within="faultset.agents")),
        settings=settings_hash(what),
    )


def label_of(run: AgentRun) -> str:
    """Return the name of a run's agent in tables: with its model, where it has one."""
    return run.agent if run.model is None else f"{run.agent} ({run.model})"
