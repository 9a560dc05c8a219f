"""Compare MicroRank and TraceRCA with RCAEval's versions on the same episodes.

    python benchmarks/external/trace_cross_check.py [--dataset DATASET] [--environment FOLDER] [--json]

Exports the fault episodes of a dataset (the sample by default) as RCAEval lays them out, installs RCAEval in a virtual
environment (in a temporary folder, or in FOLDER, which is kept and reused), runs its methods on the exported files with
the true onset, and prints both rankings of services. The weights of MicroRank's PageRank are compared on random
graphs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from published_packages import install, show_comparisons
from scipy import sparse
from scipy.stats import kendalltau

from faultset.baselines.methods.localization.spectrum import jaccard, trace_weights
from faultset.baselines.registry import get_baseline
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.exports.exporter import export_dataset

SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
WORKER = Path(__file__).with_name("trace_cross_check_originals.py")
PACKAGES = {
    "RCAEval 1.8.1 (--no-deps)": (
        (
            "pandas",
            "pyarrow",
            "scikit-learn",
            "networkx",
            "matplotlib",
            "tqdm",
            "python-dateutil",
            "requests",
            "causal-learn==0.1.4.8",
        ),
        ("--no-deps", "RCAEval==1.8.1"),
    )
}
METHODS = {"microrank": "microrank", "tracerca": "tracerca"}
"""RCAEval's function -> name of the method here."""
NOTES = {theirs: f"here {ours}" for theirs, ours in METHODS.items()}
GRAPHS = 10
PAGE_RANK, INDEX = "PageRank of MicroRank, normal traces", "index of TraceRCA, on RCAEval's counts of slow spans"
Graph = dict[str, dict[str, list[str]]]


def draw_graph(seed: int, operations: int = 8, traces: int = 40) -> Graph:
    """Return traces that call a few operations each, and the calls between operations."""
    rng = np.random.default_rng(seed)
    names = [f"o{number}" for number in range(operations)]
    calls = np.triu(rng.random((operations, operations)) < 0.4, 1)
    takes = rng.random((traces, operations)) < 0.5
    takes[:, 0] = True
    takes[0] = True
    of_trace = {f"t{row}": [names[column] for column in np.flatnonzero(takes[row])] for row in range(traces)}
    return {
        "children": {name: [names[to] for to in np.flatnonzero(calls[row])] for row, name in enumerate(names)},
        "of_trace": of_trace,
        "of_operation": {name: [trace for trace, has in of_trace.items() if name in has] for name in names},
    }


def weights_here(graph: Graph) -> dict[str, float]:
    """Return this project's weights of operations among normal traces: rare kinds of traces are preferred."""
    names, traces = list(graph["children"]), list(graph["of_trace"])
    column_of = {name: column for column, name in enumerate(names)}
    matrix = np.zeros((len(traces), len(names)))
    for row, trace in enumerate(traces):
        matrix[row, [column_of[name] for name in graph["of_trace"][trace]]] = 1.0
    calls = np.zeros((len(names), len(names)))
    for name, children in graph["children"].items():
        for child in children:
            calls[column_of[name], column_of[child]] = 1.0 / len(children)
    _, kind, count = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    rare = 1.0 / count[kind.ravel()]
    ranked_weights = trace_weights(sparse.csr_matrix(matrix), rare / rare.sum(), sparse.csr_matrix(calls))
    return dict(zip(names, ranked_weights.tolist(), strict=True))


def compare_weights(graph: Graph, theirs: Mapping[str, float]) -> str:
    """Describe the difference of the weights, each divided by the largest."""
    ours, top = weights_here(graph), max(theirs.values())
    apart = max(abs(ours[name] - theirs[name] / top) for name in ours)
    return f"{'same' if apart < 0.01 else 'OTHER'} weights (largest difference {apart:.1e} of the largest weight)"


def answer_here(dataset: Dataset, episode: str, name: str) -> dict[str, float]:
    """Return this project's scores of services, given the true onset."""
    label = dataset.label(episode)
    assert label.inject_start_ns is not None
    method: Any = get_baseline(name).factory()
    return dict(method.localize(dataset.view(episode), label.inject_start_ns).scores)


def services_ranked(answer: Any) -> list[str]:
    """Return RCAEval's ranking of services: each with the rank of its best operation."""
    if isinstance(answer, dict):
        return list(dict.fromkeys(name.partition("_")[0] for name in answer["ranks"]))
    return [name for name, score in answer if score > 0]


def counts_there(answer: Any) -> str:
    """Report an operation that RCAEval's MicroRank counts in more abnormal traces than exist."""
    if not isinstance(answer, dict) or "most" not in answer or answer["most"] <= answer["abnormal"]:
        return ""
    return f"; there an operation is in {answer['most']} of {answer['abnormal']} abnormal traces"


def position(ranked: Sequence[str], target: str) -> str:
    """Return the rank of a service in words."""
    return f"{ranked.index(target) + 1} of {len(ranked)}" if target in ranked else f"not among {len(ranked)}"


def compare_rankings(ours: Mapping[str, float], theirs: Sequence[str], target: str) -> str:
    """Compare the first services, the order of common services, and the target's rank."""
    ranked = sorted(ours, key=lambda name: -ours[name])
    if not ranked or not theirs:
        return f"{len(ranked)} services here, {len(theirs)} there; nothing to compare"
    tops = [name for name in ranked if ours[name] == ours[ranked[0]]]
    both = [name for name in theirs if name in ours]
    tau = np.asarray(kendalltau([-ours[name] for name in both], range(len(both))))[0] if len(both) > 1 else np.nan
    return (
        f"{'same' if theirs[0] in tops else 'other'} first service ({'/'.join(tops)} here, {theirs[0]} there), "
        f"Kendall's tau {float(tau):.2f} over {len(both)}; the target is {position(ranked, target)} here, "
        f"{position(theirs, target)} there"
    )


def compare_index(answer: Mapping[str, Any]) -> str:
    """Rank RCAEval's counts by this project's index of TraceRCA, and compare the order of operations."""
    names, slow = list(answer["slow"]), np.array(list(answer["slow"].values()), dtype=float)
    index = jaccard(slow, slow.sum(), np.array([answer["spans"][name] for name in names], dtype=float))
    # RCAEval has no number for operations without slow spans, so its sort is undefined
    score = {name: value if value > 0 else np.nan for name, value in zip(names, index.tolist(), strict=True)}
    ours = [name for name in sorted(names, key=lambda name: score[name], reverse=True) if score[name] > 0]
    theirs = answer["ranks"]
    falls = all(score[a] >= score[b] for a, b in itertools.pairwise(theirs))
    return f"{'same' if ours == theirs else 'OTHER'} order of {len(ours)} operations that have slow spans" + (
        "" if falls else f"; it is not that of the index there, because {len(names) - len(ours)} have no number"
    )


def ask(python: Path, cases: Path) -> dict[str, dict[str, Any]]:
    """Run RCAEval under its Python."""
    answers = cases / "answers.json"
    subprocess.run([python, WORKER, cases, answers], check=True)
    return json.loads(answers.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, default=SAMPLE, help="dataset with fault episodes")
    parser.add_argument("--environment", type=Path, help="folder of the environment; kept and reused")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.dataset)
    graphs = {f"graph-{seed}": draw_graph(seed) for seed in range(GRAPHS)}
    with tempfile.TemporaryDirectory() as folder:
        environment, cases = arguments.environment or Path(folder) / "environment", Path(folder) / "cases"
        installed = install(environment, PACKAGES)
        exported = export_dataset("rcaeval", arguments.dataset, cases)
        (cases / "coverage.json").write_text(json.dumps(graphs))
        names = pq.read_table(cases / "cases.parquet", columns=["case"])["case"].to_pylist()
        answers = ask(environment / "bin" / "python", cases)
    episodes = [episode for episode in dataset.episodes if episode not in exported.left_out]
    report: dict[str, dict[str, str]] = {PAGE_RANK: {}, INDEX: {}, **{name: {} for name in METHODS}}
    for name, graph in graphs.items():
        answer = answers[name]["normal"]
        report[PAGE_RANK][name] = answer.get("error") or compare_weights(graph, answer["answer"])
    for episode, case in zip(episodes, names, strict=True):
        target = dataset.label(episode).targets[0]
        if "answer" in answers[case]["tracerca"]:
            report[INDEX][case] = compare_index(answers[case]["tracerca"]["answer"])
        for theirs, ours in METHODS.items():
            answer = answers[case][theirs]
            report[theirs][case] = (
                f"FAILED there: {answer['error']}"
                if "error" in answer
                else compare_rankings(answer_here(dataset, episode, ours), services_ranked(answer["answer"]), target)
                + counts_there(answer["answer"])
            )
    show_comparisons(installed, report, notes=NOTES, as_json=arguments.json)


if __name__ == "__main__":
    main()
