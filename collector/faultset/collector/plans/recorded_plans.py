"""Plans of an earlier campaign, read from a dataset or its card, so that the same episodes can be collected again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults, get_fault
from faultset.collector.plans.campaign_plans import campaign_code
from faultset.collector.plans.plan import Plan, read_plan
from faultset.collector.plans.planned_app import with_stores
from faultset.core.documents import parse_object
from faultset.core.errors import DataError, FaultsetError, UsageError
from faultset.core.files import canonical_json
from faultset.core.regular_files import read_regular
from faultset.datasets.dataset import open_dataset

LIMIT_BYTES = 64 << 20
_CARD_PROVENANCE = re.compile(r"^## Provenance\n+```json\n(.*?)\n```", re.MULTILINE | re.DOTALL)


def read_recorded_plans(path: Path) -> tuple[Plan, ...]:
    """Return the plans of a dataset's folder, its card, one of its version files, or a campaign's file.

    Raises DataError if there are none.
    """
    if path.is_dir():
        dataset = open_dataset(path)
        return tuple(read_plan(dataset.path(episode)) for episode in dataset.episodes)
    text = read_regular(path, limit_bytes=LIMIT_BYTES).decode(errors="replace")
    card = _CARD_PROVENANCE.search(text)
    record = parse_object(card[1] if card else text, str(path))
    provenance = record.get("provenance")
    plans = (provenance if isinstance(provenance, Mapping) else record).get("plans")
    if not isinstance(plans, list) or not plans:
        raise DataError(f"{path} must hold the plans of a campaign, but has none. Give the dataset's folder instead")
    return tuple(Plan.from_json(plan) for plan in plans)


def select_repeatable(plans: Iterable[Plan]) -> tuple[tuple[Plan, ...], tuple[str, ...]]:
    """Return the plans that this release can run, and a sentence for each of the others.

    Raises UsageError if none can be repeated, or they are for several platforms or injectors.
    """
    repeatable, objections = [], []
    for plan in plans:
        if objection := _find_objection(plan):
            objections.append(f"episode {plan.episode} ({plan.title} in {plan.app}) cannot be repeated: {objection}")
        else:
            repeatable.append(plan)
    if not repeatable:
        raise UsageError(f"no plan can be repeated; first: {objections[0] if objections else 'the list is empty'}")
    platforms = sorted({plan.platform for plan in repeatable})
    if len(platforms) > 1 or len({canonical_json(plan.settings) for plan in repeatable}) > 1:
        raise UsageError(
            f"--as-in needs plans for one platform and injector, but found {', '.join(platforms)}. "
            "Name the file of one campaign instead"
        )
    return tuple(repeatable), tuple(objections)


def _find_objection(plan: Plan) -> str:
    try:
        app = with_stores(load_app(plan.app_file or plan.app), plan.stores, plan.platform)
    except FaultsetError as error:
        return str(error)
    for planned in plan.faults:
        if planned.fault not in faults():
            return f"fault {planned.fault} is unknown"
        if planned.target not in get_fault(planned.fault).targets(app):
            return f"{planned.fault} can no longer be applied to {planned.target}"
    return ""


def identify_code(plans: Sequence[Plan]) -> dict[str, str]:
    """Return the code that plans run; see `campaign_code`."""
    names = {planned.fault for plan in plans for planned in plan.faults}
    apps = dict.fromkeys(plan.app_file or plan.app for plan in plans)
    sources = dict.fromkeys(name for plan in plans for name in plan.sources)
    return campaign_code([get_fault(name) for name in names], tuple(apps), plans[0].platform, tuple(sources))


def plans_id(plans: Sequence[Plan]) -> str:
    content: dict[str, Any] = {"plans": [json.loads(plan.to_json()) for plan in plans], "code": identify_code(plans)}
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]
