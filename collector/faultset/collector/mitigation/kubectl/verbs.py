"""The verbs of kubectl with their options, as click parses them; what they do is in the modules beside."""

from __future__ import annotations

from typing import Any, get_args

import click

from faultset.collector.mitigation.kubectl import reading, rollouts, writing
from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.collector.mitigation.kubectl.kinds import references
from faultset.collector.mitigation.kubectl.session import KubectlSession
from faultset.collector.runtime.stores.driver import AdminAction
from faultset.core.command_line.console import DURATION
from faultset.datasets.kubectl.documents import check_format
from faultset.datasets.kubectl.kinds import full_name

LONGEST_WAIT_S = 300.0
COMMAND_IN_PODS = ("faultset-store", "admin")
"""Begin of the commands that `kubectl exec` may run; a store and an action on its accounts or data follow."""


class _Command(click.Command):
    """A command without --help, whose options may stand anywhere before `--`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, add_help_option=False, **options)
        self.params.append(click.Option(["-n", "--namespace"]))

    def invoke(self, ctx: click.Context) -> Any:
        ctx.obj.check_namespace(ctx.params.pop("namespace", None))
        return super().invoke(ctx)


class _Group(click.Group):
    command_class = _Command

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, add_help_option=False, no_args_is_help=False, **options)


_words = click.argument("words", nargs=-1)
_selector = click.option("-l", "--selector")
_session = click.pass_obj


@click.group("kubectl", cls=_Group)
@click.option("-n", "--namespace")
@_session
def kubectl(session: KubectlSession, namespace: str | None) -> None:
    """Look at the application, and change it."""
    session.check_namespace(namespace)


@kubectl.command()
@_words
@click.option("-o", "--output", default="", callback=lambda context, option, value: check_format(value))
@_selector
@click.option("-A", "--all-namespaces", is_flag=True)
@click.option("--show-labels", is_flag=True)
@click.option("--no-headers", is_flag=True)
@_session
def get(
    session: KubectlSession,
    words: tuple[str, ...],
    output: str,
    selector: str | None,
    all_namespaces: bool,
    show_labels: bool,
    no_headers: bool,
) -> str:
    """Show objects."""
    return reading.get(session, words, output=output, selector=selector, labels=show_labels, headed=not no_headers)


@kubectl.command()
@_words
@_selector
@_session
def describe(session: KubectlSession, words: tuple[str, ...], selector: str | None) -> str:
    """Show objects in full, with their events."""
    return reading.describe(session, words, selector=selector)


@kubectl.command()
@click.argument("word", metavar="POD")
@click.option("--tail", type=click.IntRange(min=0))
@click.option("--since", type=DURATION)
@click.option("-c", "--container")
@click.option("-p", "--previous", is_flag=True)
@_session
def logs(
    session: KubectlSession, word: str, tail: int | None, since: float | None, container: str | None, previous: bool
) -> str:
    """Show what a pod has logged."""
    return reading.logs(session, word, tail=tail, since_s=since)


@kubectl.command()
@_words
@_selector
@_session
def top(session: KubectlSession, words: tuple[str, ...], selector: str | None) -> str:
    """Show the CPU and memory that pods use."""
    return reading.top(session, words, selector=selector)


@kubectl.command()
@_selector
@_session
def events(session: KubectlSession, selector: str | None) -> str:
    """Show events."""
    return reading.get(session, ("events",), output="", selector=None)


@kubectl.command()
@_words
@click.option("-p", "--patch", "text", required=True)
@click.option("--type", "kind_of_patch", type=click.Choice(["strategic", "merge", "json"]), default="strategic")
@_session
def patch(session: KubectlSession, words: tuple[str, ...], text: str, kind_of_patch: str) -> str:
    """Change fields of objects."""
    return writing.patch(session, words, text=text, kind_of_patch=kind_of_patch)


@kubectl.command()
@click.option("-f", "--filename", required=True)
@_session
def apply(session: KubectlSession, filename: str) -> str:
    """Create or change the objects of a manifest that lies beside the file of commands."""
    return writing.apply(session, filename)


@kubectl.command()
@click.option("-f", "--filename", required=True)
@_session
def replace(session: KubectlSession, filename: str) -> str:
    """Replace objects by those of a manifest that lies beside the file of commands."""
    return writing.replace(session, filename)


@kubectl.command()
@_words
@_selector
@click.option("--grace-period", type=click.FloatRange(min=0))
@click.option("--force", is_flag=True)
@click.option("--now", is_flag=True)
@click.option("--all", "of_all", is_flag=True)
@_session
def delete(
    session: KubectlSession,
    words: tuple[str, ...],
    selector: str | None,
    grace_period: float | None,
    force: bool,
    now: bool,
    of_all: bool,
) -> str:
    """Delete objects; their owners make pods anew."""
    grace_s = 0.0 if force and grace_period is None else 1.0 if now else grace_period
    return writing.delete(session, words, grace_s=grace_s, selector=selector, of_all=of_all)


@kubectl.command()
@_words
@click.option("--replicas", type=int, required=True)
@_session
def scale(session: KubectlSession, words: tuple[str, ...], replicas: int) -> str:
    """Change the number of a workload's pods."""
    return writing.scale(session, words, replicas)


@kubectl.command()
@_words
@_session
def label(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Change labels."""
    return writing.set_metadata(session, words, "labels")


@kubectl.command()
@_words
@_session
def annotate(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Change annotations."""
    return writing.set_metadata(session, words, "annotations")


@kubectl.command("exec")
@click.argument("word", metavar="POD")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-c", "--container")
@click.option("-i", "--stdin", is_flag=True)
@click.option("-t", "--tty", is_flag=True)
@_session
def exec_(
    session: KubectlSession, word: str, argv: tuple[str, ...], container: str | None, stdin: bool, tty: bool
) -> str:
    """Run a program in a pod."""
    # other actions of administrators write files, and pods of the local platform are processes of this machine
    if argv[:2] != COMMAND_IN_PODS or argv[3:4] not in [(action,) for action in get_args(AdminAction)]:
        raise CommandRefused(
            f"exec may run only {' '.join(COMMAND_IN_PODS)} STORE ACTION in pods, with one of the actions "
            f"{', '.join(get_args(AdminAction))}; found {' '.join(argv)!r}"
        )
    pod = reading.pod_named(session, word)
    return session.platform.exec(pod, list(argv)).rstrip()


@kubectl.command()
@_words
@click.option("--for", "condition", required=True)
@click.option("--timeout", type=DURATION, default=30.0)
@_session
def wait(session: KubectlSession, words: tuple[str, ...], condition: str, timeout: float) -> str:
    """Wait until workloads are available."""
    if condition.lower() not in ("condition=available", "condition=ready"):
        raise CommandRefused(f"--for=condition=available is known; found --for={condition}")
    rollouts.status(session, words, timeout_s=min(timeout, LONGEST_WAIT_S))
    return "\n".join(f"{full_name(kind, name or '')} condition met" for kind, name in references(words))


@kubectl.group("rollout", cls=_Group)
def rollout() -> None:
    """Rollouts of Deployments."""


@rollout.command("restart")
@_words
@_session
def rollout_restart(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Replace the pods of workloads."""
    return rollouts.restart(session, words)


@rollout.command("undo")
@_words
@click.option("--to-revision", type=click.IntRange(min=0), default=0)
@_session
def rollout_undo(session: KubectlSession, words: tuple[str, ...], to_revision: int) -> str:
    """Go back to an earlier template."""
    return rollouts.undo(session, words, to_revision)


@rollout.command("history")
@_words
@_session
def rollout_history(session: KubectlSession, words: tuple[str, ...]) -> str:
    """List revisions."""
    return rollouts.history(session, words)


@rollout.command("status")
@_words
@click.option("--timeout", type=DURATION, default=60.0)
@_session
def rollout_status(session: KubectlSession, words: tuple[str, ...], timeout: float) -> str:
    """Wait for the end of a rollout."""
    return rollouts.status(session, words, timeout_s=min(timeout, LONGEST_WAIT_S))


@kubectl.group("set", cls=_Group)
def set_() -> None:
    """Change one thing of a workload."""


@set_.command("image")
@_words
@_session
def set_image(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Change images."""
    return writing.set_image(session, words)


@set_.command("env")
@_words
@_session
def set_env(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Change environment variables."""
    return writing.set_environment(session, words)


@set_.command("resources")
@_words
@click.option("--limits")
@click.option("--requests")
@click.option("-c", "--containers")
@_session
def set_resources(
    session: KubectlSession, words: tuple[str, ...], limits: str | None, requests: str | None, containers: str | None
) -> str:
    """Change requests and limits."""
    return writing.set_resources(session, words, limits=limits, requests=requests, containers=containers)


@set_.command("selector")
@_words
@_session
def set_selector(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Replace the selector of a Service."""
    return writing.set_selector(session, words)


@click.command("sleep", add_help_option=False)
@click.argument("seconds", type=click.FloatRange(0.0, LONGEST_WAIT_S))
@_session
def sleep(session: KubectlSession, seconds: float) -> str:
    """Wait."""
    session.sleep(seconds)
    return ""
