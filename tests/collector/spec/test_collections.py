"""Documents and random graphs."""

from __future__ import annotations

import statistics

import pytest
from pydantic import ValidationError

from faultset.collector.spec.collections import Collection, RandomGraph, _compute_neighbours, neighbours


def test_generated_documents_follow_their_rules() -> None:
    collection = Collection.model_validate(
        {
            "key": "id",
            "documents": [{"id": "0"}],
            "generated": [
                {
                    "first": 2,
                    "last": 7,
                    "multiple_of": 3,
                    "fields": {"id": "{i}", "n": {"start": 1, "step": 0.5}, "c": [{"cycle": ["a", "b"]}]},
                }
            ],
        }
    )
    assert list(collection.all()) == [{"id": "0"}, {"id": "3", "n": 2.5, "c": ["b"]}, {"id": "6", "n": 4.0, "c": ["a"]}]


LARGE = RandomGraph(first=1, last=962, edges=18_812, spread=0.9, seed=98)


def test_a_graph_is_the_same_each_time_and_mutual() -> None:
    found = neighbours(LARGE)
    _compute_neighbours.cache_clear()
    assert neighbours(LARGE) == found
    assert neighbours(LARGE.model_copy(update={"seed": 99})) != found
    assert all(node in found[other] and node != other for node, some in found.items() for other in some)
    assert sum(map(len, found.values())) == 2 * 18_812


def test_few_nodes_have_many_neighbours() -> None:
    degrees = sorted(len(some) for some in neighbours(LARGE).values())
    assert statistics.median(degrees) < 0.8 * statistics.mean(degrees)
    assert degrees[-1] > 6 * statistics.mean(degrees)
    assert sum(degrees[-96:]) > 0.25 * sum(degrees)


@pytest.mark.parametrize("wrong", [{"edges": 46_000}, {"last": 1}, {"spread": 3.0}])
def test_a_graph_that_cannot_be_drawn_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        RandomGraph.model_validate({"first": 1, "last": 600, "edges": 9, **wrong})


def test_documents_list_the_neighbours_of_their_index() -> None:
    network = {"first": 1, "last": 6, "edges": 3, "seed": 1}
    fields = {
        "id": "{i}",
        "knows": {"neighbours": network},
        "posts": {"neighbours": network, "text": "{n}00", "at_most": 1},
    }
    collection = Collection.model_validate({"key": "id", "generated": [{"first": 1, "last": 6, "fields": fields}]})
    known = neighbours(RandomGraph.model_validate(network))
    for document in collection.all():
        mine = known[int(document["id"])]
        assert document["knows"] == list(mine)
        assert document["posts"] == [f"{one}00" for one in mine[:1]]
    with pytest.raises(ValidationError):
        Collection.model_validate(
            {"key": "id", "generated": [{"first": 1, "last": 2, "fields": {"a": [{"neighbours": {"first": 1}}]}}]}
        )
