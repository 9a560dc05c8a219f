"""Run published packages on the cases of cross_check.py, under the Python that has them.

    python cross_check_originals.py CASES.npz ANSWERS.json

The script does not import faultset. If a function fails, the error is its answer.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

SECONDS = "time"
Case = dict[str, Any]


def read_cases(path: str) -> dict[str, Case]:
    with np.load(path, allow_pickle=False) as stored:
        names = sorted({key.partition("/")[0] for key in stored.files})
        return {
            name: {key.split("/")[1]: stored[key] for key in stored.files if key.startswith(f"{name}/")}
            for name in names
        }


def split_windows(case: Case) -> tuple[pd.DataFrame, pd.DataFrame]:
    columns = [str(name) for name in case["columns"]]
    return pd.DataFrame(case["reference"], columns=columns), pd.DataFrame(case["values"], columns=columns)


def join_windows(case: Case) -> tuple[pd.DataFrame, int]:
    before, after = split_windows(case)
    both = pd.concat([before, after], ignore_index=True)
    both.insert(0, SECONDS, np.arange(len(both)))
    return both, len(before)


def baro_ranks(case: Case) -> Any:
    robust_scorer = import_module("baro.root_cause_analysis").robust_scorer

    data, onset = join_windows(case)
    return robust_scorer(data, inject_time=onset)["ranks"]


def nsigma_ranks(case: Case) -> Any:
    nsigma = import_module("baro.root_cause_analysis").nsigma

    data, onset = join_windows(case)
    return nsigma(data, inject_time=onset)["ranks"]


def run_length_posterior(case: Case) -> Any:
    bocpd = import_module("baro._bocpd")
    constant_hazard = import_module("baro._bocpd").constant_hazard
    online_changepoint_detection = import_module("baro._bocpd").online_changepoint_detection

    samples = np.vstack([case["reference"], case["values"]])
    posterior, _ = online_changepoint_detection(
        samples, partial(constant_hazard, 50), bocpd.MultivariateT(dims=samples.shape[1])
    )
    return posterior[:, 1:].T.tolist()


def chi_square_p(case: Case) -> Any:
    cit = import_module("causallearn.utils.cit")

    codes = np.vstack([case["reference"], case["values"]]).astype(int)
    test = cit.CIT(codes, "chisq")
    return [test(0, 1, []), test(0, 1, [2]), test(0, 1, [2, 3])]


def add_local_search() -> None:
    """Add the local search that RCAEval calls to causal-learn 0.1.4.8, which lacks it, from a copy in PyRCA."""
    search_module = import_module("causallearn.utils.PCUtils.SkeletonDiscovery")
    cit = import_module("pyrca.thirdparty.causallearn.utils.cit")
    local_search = import_module("pyrca.thirdparty.rcd.utils.SkeletonDiscovery").local_skeleton_discovery

    def search(data: Any, node: int, alpha: float, indep_test: Any = None, **more: Any) -> Any:
        return local_search(data, node, alpha, cit.CIT(data, "chisq"), **more)

    setattr(search_module, local_search.__name__, search)


def rcd_of_rcaeval(case: Case) -> Any:
    rcd = import_module("RCAEval.e2e.rcd").rcd

    add_local_search()
    data, onset = join_windows(case)
    runs = [rcd(data, inject_time=onset, seed=seed)["ranks"] for seed in range(5)]
    # it treats the clock as a series
    return [[name for name in run if name != SECONDS] for run in runs]


def rcd_of_pyrca(case: Case) -> Any:
    rcd = import_module("pyrca.analyzers.rcd")

    rankings = []
    for seed in range(5):
        np.random.seed(seed)
        before, after = split_windows(case)
        answer = rcd.RCD(rcd.RCDConfig(k=5)).find_root_causes(before, after)
        rankings.append([name for name, _ in answer.root_cause_nodes])
    return rankings


def regression_of_pyrca(case: Case) -> Any:
    ht = import_module("pyrca.analyzers.ht")

    before, after = split_windows(case)
    graph = pd.DataFrame(case["graph"], index=before.columns, columns=before.columns)
    method = ht.HT(ht.HTConfig(graph=graph, root_cause_top_k=len(before.columns)))
    method.train(before)
    return {name: float(score) for name, score in method.find_root_causes(after).root_cause_nodes}


def regression_of_rcaeval(case: Case) -> Any:
    rht = import_module("RCAEval.graph_heads.rht")

    graph, scores = case["graph"], {}
    for column, name in enumerate(case["columns"]):
        parents = np.flatnonzero(graph[:, column])
        if len(parents):
            score = rht.ANMRegressor()._score(
                case["reference"][:, parents],
                case["values"][:, parents],
                case["reference"][:, column],
                case["values"][:, column],
            )
            scores[str(name)] = float(np.max(np.abs(score)))
    return scores


def epsilon_of_pyrca(case: Case) -> Any:
    epsilon_diagnosis = import_module("pyrca.analyzers.epsilon_diagnosis")

    before, after = split_windows(case)
    length = min(len(before), len(after))
    before, after = before.iloc[:length], after.iloc[:length]
    method = epsilon_diagnosis.EpsilonDiagnosis(
        epsilon_diagnosis.EpsilonDiagnosisConfig(root_cause_top_k=len(before.columns))
    )
    method.train(before)
    answer = method.find_root_causes(after)
    return {"named": [name for name, _ in answer.root_cause_nodes], "statistic": dict(method.correlations)}


def torai_of_rcaeval(case: Case) -> Any:
    torai = import_module("RCAEval.e2e.torai").torai

    data, onset = join_windows(case)
    # it takes every 15th sample, assuming one per second
    dense = data.loc[data.index.repeat(15)].reset_index(drop=True)
    dense[SECONDS] = np.arange(len(dense))
    logs = pd.DataFrame({SECONDS: data[SECONDS] * 15, "front_log": np.arange(len(data)) % 3})
    add_local_search()
    np.random.seed(0)
    return torai({"metric": dense, "logts": logs}, inject_time=onset * 15)["ranks"]


def links_of_tigramite(case: Case) -> Any:
    data_processing = import_module("tigramite.data_processing")
    parcorr = import_module("tigramite.independence_tests.parcorr")
    pcmci = import_module("tigramite.pcmci")

    search = pcmci.PCMCI(
        data_processing.DataFrame(np.vstack([case["reference"], case["values"]])), parcorr.ParCorr(), verbosity=0
    )
    p = search.run_pcmci(tau_min=0, tau_max=3, pc_alpha=0.1)["p_matrix"]
    count = len(p)
    return sorted(
        {(i, j) for i in range(count) for j in range(count) for lag in range(4) if i != j and p[i, j, lag] <= 0.001}
    )


CHECKS: dict[str, Callable[[Case], Any]] = {
    "fse-baro robust_scorer": baro_ranks,
    "fse-baro nsigma": nsigma_ranks,
    "fse-baro bocpd": run_length_posterior,
    "causal-learn chisq": chi_square_p,
    "RCAEval rcd": rcd_of_rcaeval,
    "PyRCA RCD": rcd_of_pyrca,
    "PyRCA HT": regression_of_pyrca,
    "RCAEval RHT": regression_of_rcaeval,
    "PyRCA EpsilonDiagnosis": epsilon_of_pyrca,
    "RCAEval torai": torai_of_rcaeval,
    "tigramite PCMCI": links_of_tigramite,
}


def call_published(ask: Callable[[], Any]) -> dict[str, Any]:
    """Return the answer of a published function, or its error."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            answer = {"answer": ask()}
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.filename.rpartition('/')[2]}:{where.lineno})"
        answer = {"error": text}
    if "returning the unranked column order" in output.getvalue():
        answer = {"error": output.getvalue().strip().splitlines()[-1]}
    return answer


def main() -> None:
    warnings.simplefilter("ignore")
    answers = {
        name: {str(check): call_published(partial(CHECKS[str(check)], case)) for check in case["checks"]}
        for name, case in read_cases(sys.argv[1]).items()
    }
    with open(sys.argv[2], "w") as out:
        json.dump(answers, out)


if __name__ == "__main__":
    main()
