"""Commands that look: get, describe, logs, top."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.faults.resources import counter_now, cpu_cores
from faultset.collector.mitigation.kubectl.documents import description, without_secrets
from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.collector.mitigation.kubectl.kinds import WORKLOADS, references
from faultset.collector.mitigation.kubectl.session import KubectlSession
from faultset.collector.platforms.objects import Object
from faultset.collector.platforms.observation.objects import parse_rfc3339_ns
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS
from faultset.datasets.kubectl.ages import age
from faultset.datasets.kubectl.documents import document
from faultset.datasets.kubectl.events import COLUMNS, Event, event_cells, last_occurrences
from faultset.datasets.kubectl.object_tables import Cells, object_cells, object_tables
from faultset.datasets.kubectl.quantities import USAGE_COLUMNS, cpu_text, memory_text
from faultset.datasets.kubectl.tables import in_columns

EVENTS_WINDOW_S = 3600.0
LOGS_WINDOW_S = 3600.0
MOST_LINES = 2000


def get(
    session: KubectlSession,
    words: tuple[str, ...],
    *,
    output: str,
    selector: str | None,
    labels: bool = False,
    headed: bool = True,
) -> str:
    """Return objects as a table, or as documents in the format that `output` names."""
    named = references(words, selector)
    kinds = list(dict.fromkeys(kind for kind, _ in named))
    if kinds == ["Event"]:
        if output not in ("", "wide"):
            raise CommandRefused("events are shown as a table only; leave -o out")
        return in_columns(COLUMNS if headed else (), [event_cells(one, session.clock()) for one in _events(session)])
    found = {kind: _found(session, kind, [name for one, name in named if one == kind], selector) for kind in kinds}
    objects = [one for kind in kinds for one in found[kind]]
    if not objects:
        return "No resources found"
    if output not in ("", "wide"):
        single = len(named) == 1 and named[0][1] is not None
        return document([without_secrets(one) for one in objects], output, single=single)
    rows = {kind: [_row(one, session.clock()) for one in found[kind]] for kind in kinds}
    return object_tables(rows, wide=output == "wide", labels=labels, headed=headed)


def describe(session: KubectlSession, words: tuple[str, ...], *, selector: str | None) -> str:
    """Return objects in full, each with its events."""
    named = references(words, selector)
    parts = []
    for kind in dict.fromkeys(kind for kind, _ in named):
        for found in _found(session, kind, [name for one, name in named if one == kind], selector):
            name = found["metadata"]["name"]
            about = [event for event in _events(session) if (event["kind"], event["name"]) == (kind, name)]
            parts.append(description(found, about, session.clock()))
    return "\n\n\n".join(parts) or "No resources found"


def logs(session: KubectlSession, word: str, *, tail: int | None, since_s: float | None) -> str:
    """Return the newest lines that a pod, or the newest pod of a workload, has logged."""
    pod = pod_named(session, word)
    now_ns = session.clock()
    start_ns = now_ns - int((since_s or LOGS_WINDOW_S) * SECOND_NS)
    lines: list[str] = []
    for batch in session.platform.sources["logs"].snapshot(start_ns, now_ns):
        mine = pa.Table.from_batches([batch]).select(["pod", "level", "message"])
        mine = mine.set_column(0, "pod", mine["pod"].cast(pa.string())).filter(pc.field("pod") == pod)
        for level, message in zip(mine["level"].to_pylist(), mine["message"].to_pylist(), strict=True):
            lines.append(f"{level.upper()} {message}" if level else message)
    return "\n".join(lines[-min(MOST_LINES, tail if tail is not None else MOST_LINES) :] if tail != 0 else [])


def top(session: KubectlSession, words: tuple[str, ...], *, selector: str | None) -> str:
    """Return the CPU and memory that pods use."""
    named = references(words, selector)
    if any(kind != "Pod" for kind, _ in named):
        raise CommandRefused("top pods is known; give pods, and names if wanted")
    pods = _found(session, "Pod", [name for _, name in named], selector)
    rows = []
    for pod in pods:
        name = pod["metadata"]["name"]
        cores = cpu_cores(session.platform, name)
        memory = counter_now(session.platform, name, "container_memory_working_set_bytes")
        rows.append((name, cpu_text(cores), memory_text(memory)))
    return in_columns(["NAME", *USAGE_COLUMNS], rows)


def pod_named(session: KubectlSession, word: str) -> str:
    """Return the pod that a word names: `POD`, `pod/POD`, or `deployment/NAME` for the newest pod of a workload."""
    if "/" not in word:
        return session.get("Pod", word)["metadata"]["name"]
    ((kind, name),) = references((word,))
    assert name is not None
    if kind == "Pod":
        return session.get("Pod", name)["metadata"]["name"]
    if kind not in (*WORKLOADS, "Service"):
        raise CommandRefused(f"pods of {word} are not known; name a pod, a deployment or a service")
    found = session.get(kind, name)
    labels = found["spec"]["selector"]
    pods = session.platform.list("Pod", labels.get("matchLabels", labels) if kind != "Service" else labels)
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    if not alive:
        raise PlatformError(f"error: no pods of {word} are there")
    return max(alive, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")["metadata"]["name"]


def _row(found: Object, now_ns: int) -> Cells:
    created = found["metadata"].get("creationTimestamp")
    return object_cells(found) | {"AGE": age((now_ns - parse_rfc3339_ns(created)) / SECOND_NS if created else None)}


def _found(session: KubectlSession, kind: str, names: list[str | None], selector: str | None) -> list[Object]:
    if None in names:
        return session.found(kind, selector)
    return [session.get(kind, name) for name in names if name is not None]


def _events(session: KubectlSession) -> list[Event]:
    now_ns = session.clock()
    rows: list[Event] = []
    for batch in session.platform.sources["events"].snapshot(now_ns - int(EVENTS_WINDOW_S * SECOND_NS), now_ns):
        made = pa.Table.from_batches([batch])
        rows += made.set_column(made.column_names.index("time"), "time", made["time"].cast(pa.int64())).to_pylist()
    return last_occurrences(rows)
