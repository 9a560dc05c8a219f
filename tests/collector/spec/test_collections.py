"""Documents of collections."""

from __future__ import annotations

from faultset.collector.spec.collections import Collection


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
    assert list(collection.all()) == [
        {"id": "0"},
        {"id": "3", "n": 2.5, "c": ["b"]},
        {"id": "6", "n": 4.0, "c": ["a"]},
    ]
