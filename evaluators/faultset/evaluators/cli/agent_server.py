"""`faultset agents serve`: offer a recorded episode to agents over the Model Context Protocol."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import OUTPUT_FILE, command

if TYPE_CHECKING:
    from faultset.agents.interface.session import AgentSession, RecordedTask
    from faultset.datasets import EpisodeView
    from faultset.datasets.tools.recording import ViewClock

TOKEN_VARIABLE = "FAULTSET_MCP_TOKEN"


@command("serve", short_help="Offer a recorded episode to agents over MCP.")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--episode", "episode_id", help="Episode or recording to offer; its name is hidden from the agent.")
@click.option("--version", "version", help="Version of the dataset; the newest by default.")
@click.option("--task", default="all", show_default=True, help="Question: detection, localization, diagnosis or all.")
@click.option(
    "--now",
    "now_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Current time, in seconds from the start of the view.  [default: its end, or a minute after the alarm]",
)
@click.option("--at", "at_text", metavar="TIME", help="Alarm to start from, in UTC: 14:03:20. Needed for a recording.")
@click.option("--complaint", is_flag=True, help="Give the agent the vague complaint of a user instead of the alarm.")
@click.option(
    "--diagnose", is_flag=True, help="Also offer the tool diagnose; it names suspects, so do not score such agents."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Serve HTTP on 127.0.0.1 instead of standard streams.")
@click.option("--out", type=OUTPUT_FILE, help="File for the answer and usage counts, as JSON.")
def serve(
    dataset: Path, episode_id: str | None, version: str | None, port: int | None, out: Path | None, **options: Any
) -> None:
    """Offer the tools of a recorded episode to an agent: metrics, traces, logs, events, objects, kubectl, SQL.

    Agents such as Claude Code start this command and talk to it over standard input and output. With --port it serves
    HTTP at /mcp to clients that send the printed token, or the one in FAULTSET_MCP_TOKEN. The process can read only
    the episode's view. Run an agent with its own shell on a machine without the dataset. DATASET may also be the
    folder of one episode, without --episode.

    \b
    Example:
      faultset agents serve datasets/sample --episode a5edb68659bc
      faultset agents serve core-2 --episode ID --at 2026-11-28T14:03:20 --complaint
    """
    import mcp.server.stdio  # noqa: F401  reports a missing extra in one sentence

    from faultset.agents.interface.servers import LOOPBACK, serve_on_loopback, serve_on_standard_streams
    from faultset.core.files import replacing

    stack = ExitStack()
    folder = _open_folder(stack, dataset, episode_id, version, options["at_text"])
    session = _open_session(folder, **options)
    _confine(folder, out)

    def save_report() -> None:
        if out is not None:
            with replacing(out) as temporary:
                temporary.write_text(json.dumps(session.report(), indent=2) + "\n", "utf-8")

    try:
        if port is None:
            serve_on_standard_streams(session, save_report)
        else:
            token = _read_token()
            click.echo(f"Serving http://{LOOPBACK}:{port}/mcp; stop with Ctrl-C", err=True)
            serve_on_loopback(session, port, token, save_report)
    finally:
        save_report()
        stack.close()
        report = session.report()
        click.echo(f"Answer: {json.dumps(report['answer'])}; {report['tool_calls']} calls", err=True)


def _open_folder(
    stack: ExitStack, dataset: Path, episode: str | None, version: str | None, at_text: str | None
) -> Path:
    """Return the folder of the episode; the part of a recording around a time is written to a temporary folder."""
    from faultset.datasets.dataset import episode_folder
    from faultset.evaluators.diagnosis.sources import IncidentSource, open_incident

    if at_text is None:
        return episode_folder(dataset, episode, version)
    source = IncidentSource(paths=(str(dataset),), episode=episode, version=version, at=at_text)
    opened, _ = stack.enter_context(open_incident(source))
    return opened.path


def _open_session(
    folder: Path, *, task: str, now_s: float | None, at_text: str | None, complaint: bool, diagnose: bool
) -> AgentSession:
    """Return a session with the tools of an episode."""
    from typing import cast

    from faultset.agents.interface.session import AgentSession
    from faultset.datasets import EpisodeView
    from faultset.datasets.tools.toolset import EpisodeTools

    view = EpisodeView(folder)
    clock, situation = _describe_start(view, now_s, at_text, complaint=complaint)
    tools = EpisodeTools(view, clock)
    if diagnose:
        from faultset.evaluators.diagnosis.agent_tool import diagnosis_tool

        tools.tools["diagnose"] = diagnosis_tool(folder, clock)
    return AgentSession(tools, cast("RecordedTask", task), situation)


def _describe_start(
    view: EpisodeView, now_s: float | None, at_text: str | None, *, complaint: bool
) -> tuple[ViewClock, str]:
    """Return the clock, and sentences about the alarm or complaint from which the agent starts."""
    from faultset.agents.interface.session import compose_complaint, describe_situation
    from faultset.core.errors import UsageError
    from faultset.datasets.tools.recording import ViewClock
    from faultset.evaluators.diagnosis.text import check_moment, read_moment

    context = view.context
    clock = ViewClock(context, None if now_s is None else context.view_start_ns + round(now_s * 1e9))
    if at_text is None:
        if complaint:
            raise UsageError("--complaint needs the time of the alarm; add --at TIME")
        return clock, ""
    alarm_ns = check_moment(read_moment(at_text, context.view_start_ns), context)
    if now_s is None:
        clock = ViewClock.after(context, alarm_ns)
    return clock, describe_situation(clock, alarm_ns, compose_complaint(view, alarm_ns) if complaint else None)


def _read_token() -> str:
    """Return the token that clients must send; without one in the environment, draw and print one."""
    import secrets

    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        token = secrets.token_urlsafe(24)
        click.echo(f"Token: {token}", err=True)
    return token


def _confine(episode: Path, out: Path | None) -> None:
    """Restrict this process to reading the view and writing next to `out`."""
    import tempfile

    from faultset.evaluators.execution.runners.baseline_worker import confine_method
    from faultset.evaluators.execution.runners.messages import MethodProcess

    folder = str(episode.resolve())
    process = MethodProcess(key="serve", built_in=True, episodes=(folder,), tables=None)
    tempfile.tempdir = str(out.resolve().parent) if out is not None else tempfile.mkdtemp(prefix="faultset-")
    confine_method(process, tempfile.tempdir)
