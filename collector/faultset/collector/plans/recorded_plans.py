"""Plans that were made before: of a file, or of an episode that was collected."""

from __future__ import annotations

from pathlib import Path

from faultset.collector.plans.plan import Plan
from faultset.core.errors import DataError
from faultset.core.json_text import read_json_lines
from faultset.core.reading.documents import parse_object
from faultset.core.reading.regular_files import read_regular
from faultset.datasets.format.episodes import JOURNAL_FILE

LIMIT_BYTES = 2**16


def read_plan(path: Path) -> Plan:
    """Return the plan in a JSON file, or the one by which the episode in a folder was collected.

    Raises
    ------
    DataError
        There is no such file or folder, or it holds no plan.
    """
    if not path.is_dir():
        text = read_regular(path, limit_bytes=LIMIT_BYTES).decode(errors="replace")
        return Plan.from_json(parse_object(text, str(path)))
    journal = path / JOURNAL_FILE
    if not journal.exists():
        raise DataError(f"{path} is no episode that was collected here: it has no {JOURNAL_FILE}; give another")
    for record in read_json_lines(journal):
        if record.get("state") == "note" and record.get("verb") == "plan":
            return Plan.from_json(record.get("args") or {})
    raise DataError(f"{journal} holds no plan; collect the episode with this release")
