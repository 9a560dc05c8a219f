"""What the documentation grants is what the platform asks for."""

from __future__ import annotations

from pathlib import Path

import yaml

from faultset.collector.apps import load_app
from faultset.collector.platforms.kubernetes.permissions import ROLE_RULES, operator_permissions
from faultset.collector.spec.manifests import operator_rules

DOCS = Path(__file__).parents[4] / "docs" / "how-to"
OPERATOR = load_app("tidb").operator


def documented(file: str) -> set[tuple[str, str, str]]:
    rules = yaml.safe_load((DOCS / file).read_text(encoding="utf-8"))["rules"]
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def test_the_documented_role_for_operators_is_what_the_platform_asks_for() -> None:
    assert OPERATOR is not None
    asked = operator_permissions(OPERATOR.resource)
    assert documented("kubernetes-operator-role.yaml") == {
        (rule.group, resource, verb) for rule in asked for resource in rule.resources for verb in rule.verbs
    }


def test_both_documented_roles_hold_everything_that_an_operator_is_given() -> None:
    assert OPERATOR is not None
    given = operator_rules(OPERATOR.resource)
    needed = {(g, r, v) for rule in given for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
    plain = {(rule.group, resource, verb) for rule in ROLE_RULES for resource in rule.resources for verb in rule.verbs}
    assert needed <= plain | documented("kubernetes-operator-role.yaml")
