"""Compare metric localizers with the published packages on the same arrays.

    python benchmarks/external/cross_check.py [--environment FOLDER] [--json]

Creates a virtual environment in a temporary folder, or in FOLDER, which is kept and reused. Installs each package that
pip can get, runs it on the cases, and prints agreements and differences with this project, with reasons. Packages that
cannot be installed or that fail are listed with the reason. Cases are synthetic chains with a known cause, and the
metrics of the sample dataset's episodes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from published_packages import install, show_comparisons
from scipy.stats import kendalltau

from faultset.baselines.features.windows import localization_windows
from faultset.baselines.methods.localization.causal_discovery import FNodeTests, mean_reciprocal_ranks
from faultset.baselines.methods.localization.circa import regression_scores
from faultset.baselines.methods.localization.distribution_changes import run_lengths
from faultset.baselines.methods.localization.torai import shares
from faultset.baselines.methods.rules.metric_rules import KSigma, published_scores
from faultset.baselines.stats.dependence import chi_square, lagged_links, permutation_p_values, ranked_samples
from faultset.baselines.stats.scaling import mean_and_sd
from faultset.datasets.dataset import open_dataset

SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
WORKER = Path(__file__).with_name("cross_check_originals.py")
PACKAGES: Mapping[str, Sequence[Sequence[str]]] = {
    "fse-baro 0.2.2": (("fse-baro==0.2.2",),),
    "causal-learn 0.1.4.8": (("causal-learn==0.1.4.8",),),
    "RCAEval 1.8.1 (--no-deps)": (
        ("pandas", "scikit-learn", "networkx", "matplotlib"),
        ("--no-deps", "RCAEval==1.8.1"),
    ),
    "sfr-pyrca 1.0.1 (--no-deps)": (("pyyaml", "dill", "setuptools<81"), ("--no-deps", "sfr-pyrca==1.0.1")),
    "tigramite 5.2.10.1": (("tigramite==5.2.10.1",),),
}
NOTES = {
    "RCAEval rcd": "with the local search of PyRCA, because causal-learn 0.1.4.8 has none",
    "RCAEval torai": "only the severity of metrics; with the local search of PyRCA",
    "PyRCA RCD": "one run for each of five seeds there, the mean of ten runs here",
    "PyRCA EpsilonDiagnosis": "another statistic: it correlates the two windows sample by sample",
    "tigramite PCMCI": "all pairs tested there, thinned candidates here",
}
SEEDS = range(10)
ROOT = 3
Case = dict[str, np.ndarray]


def chain(seed: int, *, shift: float = 6.0, reference: int = 300, values: int = 300, checks: Sequence[str]) -> Case:
    """Create twelve series: a chain in which each of c00 to c06 drives the next, with c03 shifted, and four others."""
    rng = np.random.default_rng(seed)

    def draw(samples: int, moved: float) -> np.ndarray:
        columns = [rng.normal(size=samples)]
        for node in range(1, 8):
            columns.append(1.2 * columns[-1] + rng.normal(size=samples) + moved * (node == ROOT))
        return np.column_stack([*columns, rng.normal(size=(samples, 4))])

    graph = np.diag(np.ones(11), 1)
    graph[7:, :] = 0
    return {
        "reference": draw(reference, 0.0),
        "values": draw(values, shift),
        "columns": np.array([f"c{number:02d}_x" for number in range(12)]),
        "graph": graph,
        "checks": np.array(checks),
    }


def sample_cases() -> dict[str, Case]:
    """Return the metrics around k-sigma's alarms in sample episodes; gaps have the healthy mean."""
    dataset = open_dataset(SAMPLE)
    cases: dict[str, Case] = {}
    for episode in dataset.episodes:
        view = dataset.view(episode)
        alarm_ns = KSigma().detect(view).alarm_ns
        if alarm_ns is None:
            continue
        windows = localization_windows(view, alarm_ns)
        mean, _ = mean_and_sd(windows.reference)
        cases[f"sample-{episode}"] = {
            "reference": np.where(np.isfinite(windows.reference), windows.reference, mean),
            "values": np.where(np.isfinite(windows.values), windows.values, mean),
            "columns": np.array([f"{service}_{metric}" for service, metric in windows.series]),
            "checks": np.array(["fse-baro robust_scorer", "fse-baro nsigma"]),
        }
    return cases


def make_cases() -> dict[str, Case]:
    """Return every case with its checks."""
    cases = sample_cases()
    methods = (
        "fse-baro robust_scorer",
        "fse-baro nsigma",
        "RCAEval rcd",
        "PyRCA RCD",
        "PyRCA HT",
        "RCAEval RHT",
        "PyRCA EpsilonDiagnosis",
        "RCAEval torai",
    )
    for seed in SEEDS:
        cases[f"chain-{seed}"] = chain(seed, checks=methods)
        rng = np.random.default_rng(seed)
        level = np.vstack([rng.normal(0.3, 0.1, (40, 6)), rng.normal(0.8, 0.1, (30, 6))])
        cases[f"level-{seed}"] = {
            "reference": level[:40],
            "values": level[40:],
            "columns": np.array([f"s{number}_x" for number in range(6)]),
            "checks": np.array(["fse-baro bocpd"]),
        }
        codes = rng.integers(0, 3, (200, 4))
        codes[:, 1] = np.where(rng.random(200) < 0.2, codes[:, 0], codes[:, 1])
        cases[f"codes-{seed}"] = {
            "reference": codes[:100],
            "values": codes[100:],
            "columns": np.array([f"k{number}_x" for number in range(4)]),
            "checks": np.array(["causal-learn chisq"]),
        }
        series = rng.normal(size=(300, 6))
        for row in range(2, 300):
            series[row, 1] += 0.6 * series[row - 1, 0]
            series[row, 2] += 0.6 * series[row - 2, 1]
        cases[f"delays-{seed}"] = {
            "reference": series[:150],
            "values": series[150:],
            "columns": np.array([f"d{number}_x" for number in range(6)]),
            "checks": np.array(["tigramite PCMCI"]),
        }
    return cases


def by_deviation(*, robust: bool) -> Callable[[Case, Any], str]:
    """Return a function that compares rankings of series by their deviation."""

    def compare(case: Case, ranks: Any) -> str:
        names = case["columns"].tolist()
        scores = dict(zip(names, published_scores(case["reference"], case["values"], robust=robust), strict=True))
        theirs = [float(scores[name]) for name in ranks]
        rising = [score for score in theirs if score > 0]
        same = np.allclose(rising, sorted(rising, reverse=True)) and not any(theirs[len(rising) :])
        order = "same order" if same else "ORDER DIFFERS"
        left_out = sum(name not in set(ranks) for name in names)
        return f"{order} of {len(rising)} series that rise; {left_out} constant ones are left out in both"

    return compare


def compare_run_lengths(case: Case, posterior: Any) -> str:
    """Compare posteriors of the run length."""
    ours = run_lengths(np.vstack([case["reference"], case["values"]])).probability
    theirs = np.array(posterior)
    apart = float(np.abs(ours - theirs).max())
    return f"{'same' if apart < 1e-6 else 'DIFFERENT'} run-length posterior (largest difference {apart:.1e})"


def compare_chi_square(case: Case, p_values: Any) -> str:
    """Compare p-values without, with one and with two conditions."""
    codes = np.vstack([case["reference"], case["values"]]).astype(np.int64)
    ours = [
        chi_square(codes[:, 0], codes[:, 1], [codes[:, column] for column in conditions])[0]
        for conditions in ((), (2,), (2, 3))
    ]
    apart = float(np.abs(np.array(ours) - np.array(p_values)).max())
    return f"{'same' if apart < 1e-9 else 'DIFFERENT'} p-values (largest difference {apart:.1e})"


def rcd_ranking(case: Case, seed: int = 0) -> list[str]:
    """Rank columns with this project's RCD."""
    tests = FNodeTests(case["reference"], case["values"])
    scores = mean_reciprocal_ranks(tests, range(len(case["columns"])), np.random.default_rng(seed))
    return [str(case["columns"][column]) for column in sorted(scores, key=lambda column: -scores[column])]


def compare_rcd(case: Case, answer: Any) -> str:
    """Compare first places; the packages answer once for each seed."""
    runs = answer if answer and isinstance(answer[0], list) else [answer]
    first = [run[0] if run else "nobody" for run in runs]
    ours, truth = rcd_ranking(case)[0], str(case["columns"][ROOT])
    agree = sum(name == ours for name in first)
    return f"{'same' if agree == len(first) else 'other'} first series in {agree} of {len(first)} runs; " + (
        f"here {'the cause' if ours == truth else ours}, there the cause in {sum(n == truth for n in first)}"
    )


def residual_scores(case: Case) -> dict[str, float]:
    """Score each series given its parents in the known graph, with this project's CIRCA."""
    mean, sd = mean_and_sd(case["reference"])
    before, after = (case["reference"] - mean) / sd, (case["values"] - mean) / sd
    scores = {}
    for column, name in enumerate(case["columns"].tolist()):
        parents = np.flatnonzero(case["graph"][:, column])
        score = regression_scores(before[:, [column]], after[:, [column]], before[:, parents], after[:, parents])
        scores[name] = float(score[0])
    return scores


def compare_regression(case: Case, answer: Any) -> str:
    """Compare residual scores; the residual spread ignores the number of parents in the packages."""
    ours = residual_scores(case)
    apart = max(abs(ours[name] / answer[name] - 1) for name in answer)
    same = max(answer, key=lambda name: answer[name]) == max(answer, key=lambda name: ours[name])
    return (
        f"{'same' if same else 'OTHER'} first series, scores within {apart:.2%} "
        "(residual spreads account for the number of parents here, but not there)"
    )


def compare_epsilon(case: Case, answer: Any) -> str:
    """Compare the results of both statistics for the shifted series."""
    mean, sd = mean_and_sd(case["reference"])
    samples = ranked_samples((case["reference"] - mean) / sd, (case["values"] - mean) / sd)
    distance, p = samples.distances, permutation_p_values(samples, rng=np.random.default_rng(0))
    root = str(case["columns"][ROOT])
    named = answer["named"]
    return (
        f"shifted series: p = {p[ROOT]:.3f}, largest distance {'yes' if distance.argmax() == ROOT else 'no'} here; "
        f"squared correlation {answer['statistic'][root]:.4f}, {'named' if root in named else 'not named'} there "
        f"({len(named)} named in all)"
    )


def compare_torai(case: Case, ranks: Any) -> str:
    """Compare the first service; with one source and singleton services both rank by severity."""
    mean, sd = mean_and_sd(case["reference"])
    severity = np.abs((case["values"] - mean) / sd).max(axis=0)
    services = [str(name).partition("_")[0] for name in case["columns"]]
    share = shares(severity, services, services)
    order = [services[index] for index in np.argsort(-share)]
    theirs = [str(name).partition("_")[0] for name in ranks if str(name).partition("_")[0] in services]
    tau = float(np.asarray(kendalltau([order.index(name) for name in theirs], range(len(theirs))))[0])
    return (
        f"{'same' if order[0] == theirs[0] else 'other'} first service as by severity of metrics here, "
        f"Kendall's tau {tau:.2f}"
    )


def compare_links(case: Case, answer: Any) -> str:
    """Compare sets of links."""
    ours = lagged_links(np.vstack([case["reference"], case["values"]]), lags=3).links
    theirs = {(cause, effect) for cause, effect in answer}
    return f"{'same' if ours == theirs else 'other'} links: {sorted(ours)} here, {sorted(theirs)} there"


COMPARISONS: Mapping[str, Callable[[Case, Any], str]] = {
    "fse-baro robust_scorer": by_deviation(robust=True),
    "fse-baro nsigma": by_deviation(robust=False),
    "fse-baro bocpd": compare_run_lengths,
    "causal-learn chisq": compare_chi_square,
    "RCAEval rcd": compare_rcd,
    "PyRCA RCD": compare_rcd,
    "PyRCA HT": compare_regression,
    "RCAEval RHT": compare_regression,
    "PyRCA EpsilonDiagnosis": compare_epsilon,
    "RCAEval torai": compare_torai,
    "tigramite PCMCI": compare_links,
}


def ask(python: Path, cases: Mapping[str, Case]) -> dict[str, dict[str, Any]]:
    """Run the packages under their Python."""
    with tempfile.TemporaryDirectory() as folder:
        cases_file, answers_file = Path(folder) / "cases.npz", Path(folder) / "answers.json"
        arrays: dict[str, Any] = {f"{name}/{key}": value for name, case in cases.items() for key, value in case.items()}
        np.savez(cases_file, **arrays)
        subprocess.run([python, WORKER, cases_file, answers_file], check=True)
        return json.loads(answers_file.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, help="folder of the environment; kept and reused")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = arguments.environment or Path(folder)
        installed = install(environment, PACKAGES)
        cases = make_cases()
        answers = ask(environment / "bin" / "python", cases)
    report: dict[str, dict[str, str]] = {check: {} for check in COMPARISONS}
    for name, results in answers.items():
        for check, answer in results.items():
            failed = answer.get("error")
            report[check][name] = f"FAILED: {failed}" if failed else COMPARISONS[check](cases[name], answer["answer"])
    show_comparisons(installed, report, notes=NOTES, as_json=arguments.json)


if __name__ == "__main__":
    main()
