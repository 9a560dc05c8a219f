"""Rows that an evaluation keeps in compressed parts come back as they were, and take a fraction of their size."""

from __future__ import annotations

import pickle
import random
import tracemalloc

from faultset.evaluators.results.compressed_rows import CompressedRows, compressed

SERVICES = [f"service-{number}" for number in range(20)]


def test_rows_come_back_with_one_truth_for_each_episode(make):
    rows = [make.detection(make.truth("e1"), range(65, 101)), make.detection(make.healthy("h1"), [])]
    rows += [make.row(make.truth("e1"), ranking={"a": 0.5, "b": float("-inf")}, given_alarm_ns=7, needs=("sli",))]
    parts = CompressedRows()
    parts.add(rows[:2])
    parts.add([])
    parts.add(rows[2:])
    found = parts.rows()
    assert found == rows
    assert len(parts) == 3
    assert found[0].truth is found[2].truth


def test_rows_take_a_quarter_of_what_the_objects_of_a_message_take(make):
    draw = random.Random(1)
    rows = [
        make.row(make.truth(f"e{number}"), ranking={name: draw.random() for name in SERVICES}) for number in range(40)
    ]
    message = pickle.dumps(rows)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        received = pickle.loads(message)
        objects = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(compressed(received)) < objects / 4
