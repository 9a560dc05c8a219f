"""Selectors of labels and fields."""

from __future__ import annotations

import pytest

from faultset.datasets.kubectl.errors import CommandError
from faultset.datasets.kubectl.selectors import field_terms, label_selector

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
    assert label_selector(text).matches(LABELS) is wanted


@pytest.mark.parametrize("text", ["=x", "a b", "a in b", "a in (b", "ain (b)", "!a=b", ",", "a=b c=d", "(a)"])
def test_a_selector_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        label_selector(text)


def test_fields_have_a_path_a_sign_and_a_value() -> None:
    assert field_terms("status.phase!=Running,reason==Killing") == [
        ("status.phase", "!=", "Running"),
        ("reason", "==", "Killing"),
    ]
    with pytest.raises(CommandError, match="cannot be read"):
        field_terms("phase")
