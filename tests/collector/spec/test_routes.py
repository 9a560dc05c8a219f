"""Paths with parts in braces."""

from __future__ import annotations

from faultset.collector.spec.routes import find_route


def test_a_part_in_braces_stands_for_anything_but_a_slash_and_a_plain_path_comes_first() -> None:
    operations = ("/product/{id}", "/product/new", "/a.b/{x}/{y}")
    assert find_route("/product/7", operations) == ("/product/{id}", {"id": "7"})
    assert find_route("/product/new", operations) == ("/product/new", {})
    assert find_route("/a.b/1/2", operations) == ("/a.b/{x}/{y}", {"x": "1", "y": "2"})
    assert find_route("/product/7/8", operations) is None
    assert find_route("/aXb/1/2", operations) is None
