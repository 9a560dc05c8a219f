"""Agents as mitigators of live episodes: the entry point `agent` of the group `faultset.mitigators`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.agents.interface.mitigation_session import MitigationSession
from faultset.agents.models.openai_server import OpenAIModel, model_server
from faultset.agents.running.contract import Agent
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.running.run import run_agent
from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.storage import write_runs
from faultset.core.errors import UsageError
from faultset.datasets.tools.toolset import EpisodeTools
from faultset.evaluators.agent_evaluation.batches import store
from faultset.evaluators.agent_evaluation.choice import AgentSettings, ChosenAgent, chosen_agent
from faultset.evaluators.agent_evaluation.guests import GuestAgent, is_guest
from faultset.evaluators.execution.label_cache import labels_folder

AGENT_RUNS = "agent-runs"
"""Folder of the runs below that of the results."""


class AgentMitigator:
    """Repairs with an agent that the settings name.

    Settings are `agent`, and where they are wanted `model`, `base_url`, `key_variable`, `prices`, `trial`, and `limits`
    with the fields of `AttemptLimits`.
    """

    def title(self, settings: Mapping[str, Any]) -> str:
        """Return the agent's name in tables; raise UsageError when the settings cannot be used."""
        return _chosen(settings)[0].label

    def code(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return the agent's code, and a hash of what it is run with."""
        chosen, _ = _chosen(settings)
        return {"agent": chosen.code, "agent settings": chosen.settings}

    def mitigate(
        self, tools: EpisodeTools, settings: Mapping[str, Any], *, run: str, out: Path, hidden: Sequence[Path]
    ) -> dict[str, Any]:
        """Let the agent repair the system, write its trajectory below `out`, and return its row as JSON."""
        chosen, agent_settings = _chosen(settings)
        agent: Agent = chosen.agent
        limits, server = agent_settings.limits, agent_settings.server if agent.needs_model else None
        places = tuple(str(path.absolute()) for path in hidden)
        if is_guest(agent.name):
            agent = GuestAgent(
                inner=agent,
                episode=str(out / "episodes" / run),
                silence_s=limits.seconds,
                hidden=(*places, str(labels_folder())),
            )
        trial = int(settings.get("trial", 0))
        finished = run_agent(
            agent,
            MitigationSession(tools),
            limits,
            problem_seed=int.from_bytes(run.encode()[:4]) + trial,
            model=None if server is None else OpenAIModel(server),
            price=agent_settings.price if server is not None else None,
            secrets=(*places, run),
            run=run,
            settings_hash=chosen.settings,
            episode=run,
            trial=trial,
            not_recorded=None,
        )
        return store(out / AGENT_RUNS, finished).run.model_dump(mode="json")

    def keep(self, out: Path, records: Sequence[Mapping[str, Any]]) -> None:
        """Write the table of all runs."""
        runs = [AgentRun.model_validate(dict(record)) for record in records if "agent" in record]
        if runs:
            (out / AGENT_RUNS).mkdir(parents=True, exist_ok=True)
            write_runs(out / AGENT_RUNS, runs)


def _chosen(settings: Mapping[str, Any]) -> tuple[ChosenAgent, AgentSettings]:
    known = {"agent", "model", "base_url", "key_variable", "prices", "trial", "limits"}
    if unknown := sorted({*settings} - known):
        raise UsageError(f"an agent has no setting {unknown[0]}; there are {', '.join(sorted(known))}")
    place = settings.get("prices")
    server = model_server(settings.get("model"), settings.get("base_url"), settings.get("key_variable"))
    made = AgentSettings(
        limits=AttemptLimits(**(settings.get("limits") or {})),
        server=server,
        prices=None if place is None else Path(place),
    )
    return chosen_agent(str(settings["agent"]), made), made
