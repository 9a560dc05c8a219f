"""The page: one HTML file that holds its script, its style and its data, and asks nothing of a network.

Nothing of a dataset is ever markup or script. It is deflated JSON in Base64, an alphabet without `<`, which the script
reads and shows as text; and a content security policy lets the browser run the one script whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import UsageError
from faultset.core.files import replacing, translate_write_errors
from faultset.datasets.dataset import Dataset
from faultset.datasets.explorer.content import Answers, content_json, episode_content, episode_row
from faultset.datasets.format.storage import translate_disk_full

LARGEST_FILE = 48 << 20
"""Characters of data that browsers open without a wait, on a phone too."""
_SCRIPTS = tuple(
    f"{name}.js"
    for name in ("elements", "axis", "list", "services", "telemetry", "traces", "answers", "diagnosis", "page")
)


def write_page(
    dataset: Dataset,
    out: Path,
    *,
    episodes: Sequence[str] | None = None,
    truth: bool = True,
    answers: Answers | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a page about episodes of a dataset, and return its size in bytes.

    Parameters
    ----------
    out
        File to make or to replace.
    episodes
        Ids; all of the version by default.
    truth
        Whether labels are in the page.
    answers
        What methods answered, by episode; see `faultset.datasets.explorer.answers.read_answers`.
    progress
        Told how many episodes are finished, and of how many.

    Raises
    ------
    UsageError
        The page would be larger than browsers open without a wait, or cannot be written.
    DataError
        An episode is damaged, or the version does not have it.
    """
    chosen = list(dataset.episodes if episodes is None else dict.fromkeys(episodes))
    dataset.check_files(episodes=chosen)
    steps = StepCounter(len(chosen), progress)
    blocks = [_block("dataset", packed(dataset_content(dataset, chosen, truth=truth)))]
    size = len(blocks[0])
    for number, episode in enumerate(chosen):
        content = episode_content(dataset[episode], truth=truth, answers=answers)
        blocks.append(_block(f"episode-{number}", packed(content)))
        size += len(blocks[-1])
        if size > LARGEST_FILE:
            raise UsageError(
                f"the page would be larger than {LARGEST_FILE >> 20} MB after {number + 1} of {len(chosen)} episodes; "
                "choose some with --episode, or look at all of them with --serve"
            )
        steps.add()
    text = page_text("".join(blocks))
    with translate_disk_full(out.parent), translate_write_errors(out), replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return len(text.encode())


def dataset_content(dataset: Dataset, episodes: Sequence[str], *, truth: bool) -> dict[str, Any]:
    """Return what the page says of a dataset before an episode is opened."""
    return {
        "name": dataset.root.resolve().name,
        "version": dataset.version,
        "truth": truth,
        "synthetic": bool(dataset.provenance.get("synthetic")),
        "episodes": [episode_row(dataset[episode], truth=truth) for episode in episodes],
    }


def packed(content: Any) -> bytes:
    """Return content as deflated JSON."""
    return zlib.compress(content_json(content).encode(), 9)


def page_text(blocks: str, *, served: bool = False) -> str:
    """Return the page around blocks of data.

    Parameters
    ----------
    served
        Whether the page fetches episodes from the server that it came from.
    """
    script, style, template = _assets()
    connect = "connect-src 'self'; " if served else ""
    policy = (
        f"default-src 'none'; {connect}script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"POLICY": policy, "STYLE": style, "DATA": blocks, "SCRIPT": script}
    # What is put in is never looked at for marks itself.
    return "".join(parts.get(piece, piece) for piece in template.split("@@"))


def _block(name: str, content: bytes) -> str:
    return f'<script type="application/octet-stream" id="{name}">{base64.b64encode(content).decode()}</script>\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _assets() -> tuple[str, str, str]:
    folder = files("faultset.datasets.explorer") / "assets"
    inside = "\n".join((folder / name).read_text("utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{inside}\n}})();\n'
    return script, (folder / "page.css").read_text("utf-8"), (folder / "page.html").read_text("utf-8")
