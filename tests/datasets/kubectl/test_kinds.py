"""Kinds and references to objects."""

from __future__ import annotations

import pytest

from faultset.datasets.kubectl.commands import CommandError
from faultset.datasets.kubectl.kinds import (
    KINDS,
    canonical_kind,
    field_terms,
    full_name,
    parse_label_selector,
    references,
    resource_name,
)


def test_a_kind_goes_by_every_name_and_by_no_other_group() -> None:
    names = {
        name: one.kind
        for one in KINDS
        for name in (
            one.kind,
            one.plural,
            *one.short,
            resource_name(one.kind),
            f"{one.plural}.{one.version}.{one.group}",
        )
    }
    assert {name: canonical_kind(name) for name in names} == names
    assert canonical_kind("deployments.v1.apps") == "Deployment"
    assert canonical_kind("deployments.example.org") is None
    assert canonical_kind("") is None


def test_objects_are_named_with_their_group() -> None:
    assert full_name("StatefulSet", "db") == "statefulset.apps/db"
    assert full_name("Ingress", "web") == "ingress.networking.k8s.io/web"
    assert full_name("Foo", "x") == "foo/x"


def known(word: str) -> str:
    return canonical_kind(word) or "none"


def test_names_stand_beside_no_selector() -> None:
    assert references(("po,svc",), known, (), "app=geo") == [("Pod", None), ("Service", None)]
    for words in (("po", "geo"), ("po/geo",)):
        with pytest.raises(CommandError, match="cannot be combined with a selector"):
            references(words, known, (), "app=geo")


def test_references_are_kinds_with_names_or_pairs() -> None:
    assert references(("po,svc", "geo"), known, ()) == [("Pod", "geo"), ("Service", "geo")]
    assert references(("po/a", "svc/b"), known, ()) == [("Pod", "a"), ("Service", "b")]
    assert references(("all",), known, ("Pod", "Service")) == [("Pod", None), ("Service", None)]


@pytest.mark.parametrize("words", [(), (",",), ("po/a", "b"), ("po/",), ("/a",)])
def test_references_that_mix_both_forms_or_name_nothing_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"a kind is missing|objects must be KIND NAME"):
        references(words, known, ())


LABELS = {"app": "geo", "tier": "back", "app.kubernetes.io/name": "geo"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", True), ("app=geo", True), ("app==geo,tier=back", True), ("app=geo,tier=front", False), ("app!=geo", False),
        ("other!=x", True), ("other=x", False), ("app in (rate, geo)", True), ("app in (rate),tier=back", False),
        ("app notin (rate,user),tier", True), ("other notin (x)", True), ("tier", True), ("other", False),
        ("!other", True), ("!app", False), ("app.kubernetes.io/name=geo", True),
    ],
)  # fmt: skip
def test_labels_are_selected_as_kubectl_does(text: str, wanted: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is wanted


@pytest.mark.parametrize("text", ["=x", "a b", "a in b", "a in (b", "ain (b)", "!a=b", ",", "a=b c=d", "(a)"])
def test_a_selector_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="cannot be parsed"):
        parse_label_selector(text)


def test_fields_have_a_path_a_sign_and_a_value() -> None:
    assert field_terms("status.phase!=Running,reason==Killing") == [
        ("status.phase", "!=", "Running"),
        ("reason", "==", "Killing"),
    ]
    with pytest.raises(CommandError, match="cannot be parsed"):
        field_terms("phase")
