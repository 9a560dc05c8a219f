from __future__ import annotations

import json

from faultset.core.command_line import output

RECORDS = [{"name": "[geo]", "rows": 12345, "share": 0.123456, "ok": True, "hidden": 1}, {"name": None, "rows": None}]


def test_records_are_a_table_for_people(capsys):
    output.show_records(RECORDS, columns={"name": "service", "rows": "rows", "share": "share", "ok": "ok"}, title="T")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "T"
    assert lines[1].split() == ["service", "rows", "share", "ok"]
    assert lines[2].split() == ["[geo]", "12,345", "0.1235", "yes"]


def test_long_lines_stay_whole_in_a_pipe(capsys):
    output.show_records([{"message": "word " * 60}], columns=["message"])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_table_is_wrapped_in_a_pipe_where_a_command_says_so(capsys):
    output.show_records([{"name": "a", "message": "word " * 60}], columns=["name", "message"], wrap_at=100)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.count("word") for line in lines) == 60
    assert max(map(len, lines)) == 100


def test_records_are_a_list_for_programs(capsys):
    output.show_records(RECORDS, columns=["name"], as_json=True)
    assert json.loads(capsys.readouterr().out) == RECORDS
