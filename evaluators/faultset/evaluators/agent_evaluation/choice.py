"""Which agents an evaluation runs or replays, with which model and limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faultset.agents.models.openai_server import OPENAI, ModelServer
from faultset.agents.models.prices import ModelPrice, read_prices
from faultset.agents.registry import GROUP, agent_names, reference_agent
from faultset.agents.running.contract import Agent
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.storage import read_runs
from faultset.core.code.identity import plugin_identity
from faultset.core.errors import UsageError
from faultset.core.plugins import plugins
from faultset.core.suggestions import unknown_name
from faultset.datasets.tools.toolset import TOOLS_VERSION
from faultset.evaluators.results.provenance import settings_hash

TRIALS = 3


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """With what agents are run."""

    trials: int = TRIALS
    """Attempts at each problem, of agents whose attempts can differ."""
    limits: AttemptLimits = field(default_factory=AttemptLimits)
    """Of one attempt."""
    server: ModelServer | None = None
    """The model that agents ask; None for agents without one."""
    prices: Path | None = None
    """File with prices; the one that comes with faultset by default."""
    max_cost_usd: float | None = None
    """US dollars for all attempts; none is begun once they are spent."""

    @property
    def price(self) -> ModelPrice | None:
        """Of the model, where it is known."""
        return None if self.server is None else read_prices(self.prices).get(self.server.model)

    def __post_init__(self) -> None:
        if self.max_cost_usd is not None and not self.max_cost_usd > 0:
            raise UsageError(f"a limit of {self.max_cost_usd:g} US dollars leaves nothing to do; give one above 0")
        priced = self.max_cost_usd is not None or self.limits.cost_usd is not None
        if priced and self.server is not None and self.price is None:
            raise UsageError(
                f'nobody knows what "{self.server.model}" costs, so its costs cannot be limited; name its price in a '
                "file with --prices, or limit tokens with --max-tokens"
            )
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
            run.append(chosen_agent(one, settings))
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


def chosen_agent(name: str, settings: AgentSettings) -> ChosenAgent:
    """Return an agent with what decides its answers; raise UsageError when it cannot be used, or needs a model."""
    agent = reference_agent(name)
    server = settings.server if agent.needs_model else None
    if agent.needs_model and server is None:
        raise UsageError(
            f'the agent "{name}" asks a model; name it with --model, and its server with --base-url where it is not '
            f"{OPENAI}"
        )
    # costs and time decide no answer as long as they end no attempt, and then the next try should go on
    limits = {"steps": settings.limits.steps, "tokens": settings.limits.tokens}
    asked = None if server is None else {"model": server.model, "base_url": server.base_url}
    what = {"agent": name, "version": agent.version, "tools": TOOLS_VERSION, "limits": limits, "server": asked}
    return ChosenAgent(
        agent=agent,
        label=agent.name if server is None else f"{agent.name} ({server.model})",
        code=str(plugin_identity(plugins(GROUP)[name], within="faultset.agents")),
        settings=settings_hash(what),
    )


def label_of(run: AgentRun) -> str:
    """Return the name of a run's agent in tables: with its model, where it has one."""
    return run.agent if run.model is None else f"{run.agent} ({run.model})"
