"""SocialNetwork on the local platform, with load and telemetry."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.platform import LocalPlatform
from faultset.datasets.format.schemas import TABLES

pytestmark = pytest.mark.slow

WARM_UP_S = 6.0
MEASURED_S = 10.0


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Recorded tables of a healthy application under its default mix, after a warm-up."""
    folder: Path = tmp_path_factory.mktemp("social")
    journal = Journal(folder / "journal.jsonl")
    platform = LocalPlatform(load_app("social"), folder / "scratch", journal=journal, seed=11)

    def table(name: str, start_ns: int) -> pd.DataFrame:
        schema = pa.schema([field for field in TABLES[name] if field.name != "episode"])
        batches = platform.sources[name].snapshot(start_ns, time.time_ns())
        return pa.Table.from_batches(batches, schema=schema).to_pandas()

    try:
        platform.deploy()
        platform.start_load(seed=1, rate_rps=20, mix="mixed")
        time.sleep(WARM_UP_S)
        start_ns = time.time_ns()
        time.sleep(MEASURED_S)
        return {name: table(name, start_ns) for name in ("requests", "spans", "logs", "metrics", "objects")}
    finally:
        platform.teardown()
        journal.close()


def test_a_healthy_application_answers_every_request(tables: dict[str, pd.DataFrame]) -> None:
    answered = tables["requests"].query("outcome != 'unfinished'")
    assert len(answered) > 100
    assert set(answered["status"]) == {200}
    assert answered["endpoint"].nunique() == 3


def test_every_service_leaves_spans_lines_and_samples(tables: dict[str, pd.DataFrame]) -> None:
    app = load_app("social")
    code = {name for name, service in app.services.items() if service.kind in ("frontend", "logic")}
    assert set(tables["spans"]["service"]) == code
    assert code <= set(tables["logs"]["service"])
    assert set(app.services) <= set(tables["metrics"]["service"].dropna())


def test_a_healthy_application_logs_no_errors(tables: dict[str, pd.DataFrame]) -> None:
    lines = tables["logs"]
    assert lines[lines["level"].isin(["error", "fatal"])]["message"].to_list() == []
    assert lines["level"].notna().all()
