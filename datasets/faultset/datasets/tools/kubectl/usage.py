"""`kubectl top`: use of processors and memory from the recorded metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.datasets.kubectl.errors import CommandError
from faultset.datasets.kubectl.kinds import canonical_kind
from faultset.datasets.kubectl.quantities import USAGE_COLUMNS, cpu_text, memory_text
from faultset.datasets.kubectl.tables import in_columns
from faultset.datasets.tools.kubectl.command_line import KubectlCommand
from faultset.datasets.tools.kubectl.selection import check_namespace, chosen
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.tool_answers import ToolAnswer, absent, empty, found, not_recorded

if TYPE_CHECKING:
    import pandas as pd

_CPU, _MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
_WINDOW_S = 30.0


def top(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    """Answer `kubectl top pods`."""
    check_namespace(recording, command)
    kind = canonical_kind(command.arguments[0]) if command.arguments else None
    if kind is None:
        raise CommandError("kubectl top needs pods or nodes")
    if kind != "Pod":
        return not_recorded("use of processors and memory by nodes")
    if not {_CPU, _MEMORY} <= set(recording.metric_names):
        return not_recorded("use of processors and memory by pods")
    wanted = {one.name for one in chosen(recording, command, "Pod", [])} if recording.has("objects") else None
    names = command.arguments[1:]
    since_ns = recording.clock.since_ns(max(_WINDOW_S, 3 * recording.context.sampling_step_s))
    cpu = _rates(recording.metric([_CPU], None, since_ns))
    memory = recording.metric([_MEMORY], None, since_ns)
    last = memory.dropna(subset=["pod"]).groupby(["pod", "container"], observed=True)["value"].last()
    used = last.to_frame("memory").join(cpu.rename("cpu"), how="left").fillna({"cpu": 0.0}).reset_index()
    if wanted is not None:
        used = used[used["pod"].isin(wanted)]
    if names:
        if names[0] not in set(used["pod"]):
            return absent("pods", names[0], used["pod"].unique())
        used = used[used["pod"] == names[0]]
    if not len(used):
        return empty("no pod has samples in the last seconds")
    if not command.flag("--containers"):
        used = used.groupby("pod", observed=True)[["memory", "cpu"]].sum().reset_index()
    order = command.flags.get("--sort-by", "")
    if order not in ("", "cpu", "memory"):
        raise CommandError("--sort-by takes cpu or memory here")
    used = used.sort_values(order, ascending=False) if order else used.sort_values("pod")
    header = ["POD", "NAME"] if command.flag("--containers") else ["NAME"]
    columns = ["pod", "container"] if command.flag("--containers") else ["pod"]
    rows = [
        (*(row[name] for name in columns), cpu_text(row["cpu"]), memory_text(row["memory"]))
        for row in used.to_dict("records")
    ]
    return found(in_columns(() if command.flag("--no-headers") else [*header, *USAGE_COLUMNS], rows))


def _rates(samples: pd.DataFrame) -> pd.Series:
    groups = samples.dropna(subset=["pod"]).groupby(["pod", "container"], observed=True)
    first, last = groups.first(), groups.last()
    seconds = (last["time"] - first["time"]) / 1e9
    # A counter that is lower at the end has begun again, and then counts from zero.
    grown = (last["value"] - first["value"]).where(last["value"] >= first["value"], last["value"])
    return (grown / seconds.where(seconds > 0)).fillna(0.0)
