"""Runs of agents as work for dask, and the folder that keeps what they did."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.agents.interface.session import AgentSession
from faultset.agents.models.contract import ChatModel
from faultset.agents.models.openai_server import ModelServer, OpenAIModel
from faultset.agents.models.prices import ModelPrice
from faultset.agents.models.replies import KeptReplies
from faultset.agents.registry import reference_agent
from faultset.agents.running.contract import Agent
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.running.run import FinishedRun, run_agent
from faultset.agents.runs.storage import TRAJECTORIES, trajectory_file
from faultset.core.errors import PlatformError
from faultset.core.files import replacing
from faultset.datasets.tools.clock import ViewClock
from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.views import EpisodeView
from faultset.evaluators.agent_evaluation.guests import GuestAgent, is_guest
from faultset.evaluators.agent_evaluation.questions import AgentQuestion
from faultset.evaluators.execution.remote_episodes import EpisodeLocation, local_folders
from faultset.evaluators.results.output_folder import writing

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, kw_only=True)
class AgentTrial:
    """One run that is to be made."""

    run: str
    """Its name."""
    question: AgentQuestion
    trial: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class AgentBatch:
    """Runs of one agent about one episode, one after the other."""

    agent: str
    """As it is registered."""
    settings: str
    dataset: str
    version: str
    location: EpisodeLocation
    trials: tuple[AgentTrial, ...]
    limits: AttemptLimits
    server: ModelServer | None = None
    price: ModelPrice | None = None
    hidden: tuple[str, ...] = ()
    """Files and folders that no agent's code may read: results, which hold the truth."""
    replies: str | None = None
    """Folder that keeps the replies of the model, from which an interrupted run goes on; None keeps none."""

    def __call__(self) -> list[FinishedRun]:
        """Make the runs."""
        agent: Agent = reference_agent(self.agent)
        with local_folders((self.location,), frozenset()) as (folder,):
            view = EpisodeView(folder)
            if is_guest(self.agent):
                agent = GuestAgent(inner=agent, episode=folder, silence_s=self.limits.seconds, hidden=self.hidden)
            return [self._finished(agent, view, folder, trial) for trial in self.trials]

    def _finished(self, agent: Agent, view: EpisodeView, folder: str, trial: AgentTrial) -> FinishedRun:
        question = trial.question
        context = view.context
        alarm_ns = question.alarm_ns
        clock = ViewClock(context) if alarm_ns is None else ViewClock.after(context, alarm_ns)
        session = AgentSession(EpisodeTools(view, clock), question.task)
        return run_agent(
            agent,
            session,
            self.limits,
            alarm_ns=alarm_ns,
            problem_seed=_drawn(trial, question),
            model=self._model(trial),
            price=self.price,
            secrets=(folder, question.episode),
            run=trial.run,
            settings_hash=self.settings,
            dataset=self.dataset,
            version=self.version,
            episode=question.episode,
            protocol=question.protocol,
            trial=trial.trial,
            seed=trial.seed,
        )

    def _model(self, trial: AgentTrial) -> ChatModel | None:
        if self.server is None:
            return None
        model = OpenAIModel(self.server)
        return (
            model if self.replies is None else KeptReplies(model, Path(self.replies) / f"{trial.run}.jsonl", model.name)
        )


def _drawn(trial: AgentTrial, question: AgentQuestion) -> int:
    """Return a seed that tells an agent nothing of the episode, and differs between problems."""
    text = f"{trial.seed}/{question.episode}/{question.task}/{question.protocol}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def check_replies_are_kept(client: Client, folder: Path) -> None:
    """Raise PlatformError where a dask worker would keep replies in another folder than the one that is read later."""
    with writing(folder.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".seen-") as mark:
        seen: Any = client.run(os.path.exists, mark.name)
    blind = [worker for worker, sees in seen.items() if not sees]
    if blind:
        raise PlatformError(
            f"the dask worker {blind[0]} does not see the results in {folder.parent.parent}, so replies that it pays "
            "for would be lost; choose an --out that all workers see under the same path"
        )


def run_batches(
    client: Client,
    batches: Sequence[AgentBatch],
    at_once: int,
    finished: Callable[[list[FinishedRun]], bool],
) -> None:
    """Make the runs of all batches on dask workers, so many batches at once.

    Parameters
    ----------
    finished
        Told of every batch as it is done; no further one is begun once it returns False.
    """
    from distributed import as_completed

    waiting: Iterator[AgentBatch] = iter(batches)
    futures: set[Any] = set()

    def begin() -> Any:
        batch = next(waiting, None)
        if batch is None:
            return None
        future = client.submit(_made, batch, pure=False)
        futures.add(future)
        return future

    first = [future for _ in range(at_once) if (future := begin()) is not None]
    try:
        going = True
        remaining = as_completed(first, loop=client.loop)
        for done in remaining:
            futures.discard(done)
            going = finished(done.result()) and going
            done.release()
            more = begin() if going else None
            if more is not None:
                remaining.add(more)
    finally:
        client.cancel(list(futures))


def _made(batch: AgentBatch) -> list[FinishedRun]:
    return batch()


def run_name_of(label: str, question: AgentQuestion, trial: int, settings: str, digest: str) -> str:
    """Return a name that a run keeps as long as nothing that decides its answer changes."""
    what = f"{label}/{settings}/{digest}/{question}/{trial}"
    key = hashlib.sha256(what.encode()).hexdigest()[:10]
    readable = "".join(c if c.isalnum() else "-" for c in label)[:30].strip("-")
    return f"{readable}-{question.episode}-{question.task}-{question.protocol}-{trial}-{key}"[:100]


def trajectory_bytes(finished: FinishedRun) -> bytes:
    """Return the content of a run's trajectory file."""
    return finished.trajectory.model_copy(update={"trajectory_id": finished.run.run}).to_json()


def store(folder: Path, finished: FinishedRun) -> FinishedRun:
    """Write the trajectory of a run, and return it with where that lies."""
    content = trajectory_bytes(finished)
    file = trajectory_file(folder, finished.run)
    (folder / TRAJECTORIES).mkdir(parents=True, exist_ok=True)
    with replacing(file, durable=False) as temporary:
        temporary.write_bytes(content)
    place = {"trajectory_path": f"{TRAJECTORIES}/{file.name}", "trajectory_sha256": hashlib.sha256(content).hexdigest()}
    return replace(finished, run=finished.run.model_copy(update=place))
