from __future__ import annotations

import pytest

from faultset.datasets.tools.toolset import EpisodeTools


def ask(tools: EpisodeTools, sql: str) -> tuple[str, str]:
    answer = tools.call("query", {"sql": sql})
    return answer.status, answer.text


def test_a_query_reads_the_tables_of_the_view(tools: EpisodeTools) -> None:
    status, text = ask(tools, "select service, count(*) n from logs group by service order by n desc limit 1")
    assert status == "ok"
    assert text.split("\n")[1].split() == ["frontend", "489"]
    status, _ = ask(tools, "select 1 from logs l join spans s on l.trace_id = s.trace_id limit 1")
    assert status == "ok"
    assert ask(tools, "select * from logs where service = 'none'")[0] == "empty"


def test_what_clients_saw_and_the_episode_s_id_are_not_there(tools: EpisodeTools) -> None:
    assert ask(tools, "select * from requests")[0] == "invalid"
    assert ask(tools, "select episode from logs")[0] == "invalid"


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')", "select * from read_text('/etc/hostname')", "select * from glob('/*')",
        "select * from '/etc/passwd'", "from parquet_scan('x.parquet')", "select * from tools", "select",
    ],
)  # fmt: skip
def test_files_and_python_s_own_names_are_out_of_reach(tools: EpisodeTools, sql: str) -> None:
    assert ask(tools, sql)[0] == "invalid"


@pytest.mark.parametrize(
    "sql",
    [
        "copy logs to '/tmp/x.csv'", "attach '/tmp/x.db'", "install httpfs", "load httpfs", "set threads = 4",
        "pragma version",
        "create table x as select 1", "select 1; select 2", "select * from duckdb_settings()",
        "export database '/tmp/x'",
        "select current_setting('temp_directory')", "drop view logs", "call pragma_version()",
        "select \"getenv\"('HOME')", "select [getenv(x) for x in ['HOME']]",
        "select * from \"pg_catalog\".\"pg_class\"",
        "select 1 where exists (select * from pg_tables)", "select system.main.now()",
        "select * from query('select getenv(''HOME'')')", "select * from query_table('duckdb_settings')",
        "select * from json_execute_serialized_sql(json_serialize_sql('select 1'))",
    ],
)  # fmt: skip
def test_everything_but_one_select_over_the_recording_is_refused(tools: EpisodeTools, sql: str) -> None:
    assert ask(tools, sql)[0] == "refused"


def test_a_query_without_end_is_stopped(tools: EpisodeTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.datasets.tools.sql._TIMEOUT_S", 0.1)
    status, text = ask(
        tools, "select count(*) from range(1000000000) a, range(100000) b where a.range % 7 = b.range % 3"
    )
    assert status == "invalid"
    assert "took longer" in text


def test_more_rows_than_are_shown_are_announced(tools: EpisodeTools) -> None:
    assert "more than 200 rows" in ask(tools, "select time from logs")[1]


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from metrics where metric = 'pg_stat_database_numbackends'",
        "select count(*) as \"pg_rate\" from logs where message like '%getenv%' or message like '%pg_hba%'",
        "select count(*) n from logs -- of pg_catalog",
        "select pg_time.time from logs as pg_time limit 1",
    ],
)
def test_words_in_texts_names_of_columns_and_comments_are_no_calls(tools: EpisodeTools, sql: str) -> None:
    status, text = ask(tools, sql)
    assert status == "ok", text


@pytest.mark.parametrize(
    "clock",
    [
        "now()", "current_timestamp", "localtimestamp", "get_current_timestamp()", "transaction_timestamp()",
        "main.now()", "\"now\"()",
    ],
)  # fmt: skip
def test_the_present_time_is_that_of_the_recording(tools: EpisodeTools, clock: str) -> None:
    now_us = tools.recording.clock.now_ns // 1_000
    status, text = ask(tools, f"select epoch_us({clock}) - {now_us} as late from logs limit 1")
    assert (status, text.split("\n")[1].strip()) == ("ok", "0"), text
    recent = f"select count(*) from logs where time > {clock} - interval 5 minute and time <= {clock}"
    every = "select count(*) from logs"
    assert ask(tools, recent) == ask(tools, every)


@pytest.mark.parametrize(
    ("expression", "zero"),
    [
        ("current_date - now()::date", "0"),
        ("today() - now()::date", "0"),
        ("epoch(age(now() - interval 7 second))", "7.0"),
        ("epoch(age(now(), now() - interval 7 second))", "7.0"),
        ("current_time = now()::time", "True"),
    ],
)
def test_dates_and_ages_are_those_of_the_recording(tools: EpisodeTools, expression: str, zero: str) -> None:
    status, text = ask(tools, f"select {expression} as found from logs limit 1")
    assert (status, text.split("\n")[1].strip()) == ("ok", zero), text


def test_a_column_that_is_the_same_in_all_rows_is_printed_once(tools: EpisodeTools) -> None:
    columns = "time, service, pod, metric, labels, value"
    answer = tools.query(
        sql=f"SELECT {columns} FROM metrics WHERE metric = (SELECT min(metric) FROM metrics) ORDER BY time LIMIT 9"
    )
    first, header, *rows = answer.text.splitlines()
    assert first.startswith("# in all rows: ")
    assert "metric = " in first
    assert "metric" not in header
    assert len(rows) == 9
