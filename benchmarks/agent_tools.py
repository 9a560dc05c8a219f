"""Coverage and cost of the tools of a recorded episode.

    python benchmarks/agent_tools.py [--dataset datasets/sample] [--episodes N]

The script asks about every service of every episode with the verbs and flags that recorded shell agents used. The
share of answered commands is weighted by the verbs' shares in 6,426 commands of those agents (709 runs, eight models,
on AIOpsLab). Cost is the CPU time of each tool, for first and repeated calls, in these episodes and in a synthetic one
of standard size. Memory is the maximum of one process in which fifty agents, each in a thread, make all calls about
that episode at once.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from baseline_costs import write_large_episode

from faultset.datasets import EpisodeView, open_dataset
from faultset.datasets.tools.toolset import EpisodeTools

SHARES = {
    "logs": 30.6, "get": 27.7, "describe": 11.7, "get -o yaml, json, jsonpath": 6.2, "ConfigMap content": 4.0,
    "secrets, nodes, others": 3.4, "top": 0.9,
}  # fmt: skip
"""Per cent of all commands; exec (11.7) and writes (3.8) cannot be answered from recordings."""
ANSWERED = ("ok", "empty", "absent")
AGENTS = 50


def commands(tools: EpisodeTools) -> Iterator[tuple[str, str]]:
    """Yield commands with their verb."""
    recording = tools.recording
    pods = list(recording.objects("Pod"))
    for pod in pods:
        for flags in ("", "--tail 50", "--tail=100", "--previous", "--since=5m", "--tail 20 --previous"):
            yield "logs", f"kubectl logs {pod} {flags}"
        container = recording.objects("Pod")[pod]["containers"]
        if container:
            yield "logs", f"kubectl logs {pod} -c {container[0]['name']} --tail 50"
        yield "describe", f"kubectl describe pod {pod}"
        yield "get -o yaml, json, jsonpath", f"kubectl get pod {pod} -o yaml"
        yield (
            "get -o yaml, json, jsonpath",
            f"kubectl get pod {pod} -o jsonpath='{{.status.containerStatuses[*].restartCount}}'",
        )
    for service in recording.context.services:
        yield "logs", f"kubectl logs deploy/{service} --tail 100 | grep -i error"
        yield "logs", f"kubectl logs -l io.kompose.service={service} --tail=50"
        for kind in ("deploy", "svc", "endpoints"):
            yield "get", f"kubectl get {kind} {service}"
            yield "describe", f"kubectl describe {kind} {service}"
            yield "get -o yaml, json, jsonpath", f"kubectl get {kind} {service} -o yaml"
            yield "get -o yaml, json, jsonpath", f"kubectl get {kind} {service} -o json"
        yield "get -o yaml, json, jsonpath", f"kubectl get svc {service} -o jsonpath='{{.spec.clusterIP}}'"
        yield (
            "get -o yaml, json, jsonpath",
            f"kubectl get deploy {service} -o jsonpath='{{.spec.template.spec.containers[0].env}}'",
        )
    for kind in ("pods", "svc", "endpoints", "deploy", "rs", "pv", "pvc", "events", "all"):
        for flags in ("", "-o wide", "-A", "--show-labels", "| grep -v Running", "| head -20"):
            yield "get", f"kubectl get {kind} {flags}"
    yield "get", "kubectl get events --sort-by=.lastTimestamp"
    yield "get", "kubectl get pods --sort-by=.status.startTime"
    for name in recording.objects("ConfigMap"):
        yield "ConfigMap content", f"kubectl get configmap {name} -o yaml"
        yield "ConfigMap content", f"kubectl describe cm {name}"
    for kind in ("nodes", "secrets", "networkpolicies", "namespaces", "ingress"):
        yield "secrets, nodes, others", f"kubectl get {kind}"
    for flags in ("pods", "pods --containers", "pods --sort-by=memory", "nodes"):
        yield "top", f"kubectl top {flags}"


def calls(tools: EpisodeTools) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield a typical call of every tool for every service."""
    yield "describe_system", {}
    for service in tools.recording.context.services:
        yield "list_objects", {"kind": "Pod", "service": service}
        yield "get_object", {"kind": "Deployment", "name": service, "history": True}
        yield "list_events", {"service": service}
        yield "get_logs", {"service": service, "level": "info"}
        yield "log_patterns", {"service": service}
        yield "list_metrics", {"service": service}
        yield "get_metric", {"metric": "container_cpu_usage_seconds_total", "service": service}
        yield "compare_metrics", {"service": service}
        yield "get_spans", {"service": service}
        yield "service_graph", {}
        yield "query", {"sql": f"select level, count(*) from logs where service = '{service}' group by 1"}
        yield "query", {"sql": "select metric, avg(value) from metrics group by 1"}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Coverage and cost of the tools of a recorded episode.")
    parser.add_argument("--dataset", default=str(Path(__file__).parents[1] / "datasets" / "sample"))
    parser.add_argument("--episodes", type=int, default=1000)
    options = parser.parse_args()
    dataset = open_dataset(options.dataset)
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    costs: dict[str, list[float]] = defaultdict(list)
    for episode in dataset.episodes[: options.episodes]:
        tools = dataset[episode].tools()
        for name, arguments in calls(tools):
            _time_call(tools, name, arguments, costs)
        for verb, text in commands(tools):
            statuses[verb][_time_call(tools, "kubectl", {"command": text}, costs)] += 1
    print(f"{'verb':30}{'share':>8}{'commands':>10}{'answered':>10}  other answers")
    weighed = 0.0
    for verb, share in SHARES.items():
        counts = statuses[verb]
        answered = sum(counts[status] for status in ANSWERED) / max(1, counts.total())
        weighed += share * answered
        rest = ", ".join(f"{status} {count}" for status, count in counts.items() if status not in ANSWERED)
        print(f"{verb:30}{share:7.1f}%{counts.total():10}{100 * answered:9.1f}%  {rest}")
    print(f"{'read commands answered':30}{100 * weighed / sum(SHARES.values()):27.1f}%\n")
    _print_costs("episodes of the dataset", costs)
    costs.clear()
    with tempfile.TemporaryDirectory() as folder:
        large = write_large_episode(Path(folder))
        tools = EpisodeTools(EpisodeView(large))
        for name, arguments in calls(tools):
            _time_call(tools, name, arguments, costs)
        for _, text in list(commands(tools))[::5]:
            _time_call(tools, "kubectl", {"command": text}, costs)
        with multiprocessing.get_context("spawn").Pool(1) as process:
            before, peak = process.apply(memory_of_agents, (large,))
    _print_costs("an episode as large as a standard one", costs)
    print(f"memory of {AGENTS} agents at once: {peak:.0f} MB at most, {before:.0f} MB before any call")


def memory_of_agents(episode: Path) -> tuple[float, float]:
    """Return the peak memory of this process in MB before and after the calls of many agents about an episode."""
    first = EpisodeTools(EpisodeView(episode))
    before = _peak_memory_mb()
    typical_calls = list(calls(first))[: len({name for name, _ in calls(first)}) + 1]
    lines = list(commands(first))
    tools = [EpisodeTools(EpisodeView(episode)) for _ in range(AGENTS)]

    def ask(number: int) -> None:
        # each agent starts with another call, so that all kinds run at the same time
        for name, arguments in itertools.islice(itertools.cycle(typical_calls), number, number + len(typical_calls)):
            tools[number].call(name, arguments)
        for text in lines[number::AGENTS]:
            tools[number].call("kubectl", {"command": text})

    agents = [threading.Thread(target=ask, args=(number,)) for number in range(AGENTS)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    return before, _peak_memory_mb()


def _peak_memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _print_costs(title: str, costs: dict[str, list[float]]) -> None:
    print(f"CPU time in {title}\n{'tool':20}{'calls':>8}{'median ms':>12}{'p95 ms':>10}{'largest ms':>12}  ")
    for name, seconds in sorted(costs.items()):
        median, p95, largest = 1000 * np.quantile(seconds, (0.5, 0.95, 1.0))
        print(f"{name:20}{len(seconds):8}{median:12.1f}{p95:10.1f}{largest:12.1f}")
    print()


def _time_call(tools: EpisodeTools, name: str, arguments: dict[str, object], costs: dict[str, list[float]]) -> str:
    start = time.process_time()
    status = tools.call(name, arguments).status
    costs[name].append(time.process_time() - start)
    return status


if __name__ == "__main__":
    main()
