"""`faultset doctor`: can this machine run the embedded platform?"""

from __future__ import annotations

import click

from faultset.datasets.console import command, json_option


@command("doctor")
@json_option
def doctor(as_json: bool) -> None:
    """Check what the embedded platform needs on this machine, and say how to mend what is missing.

    \b
    Example:
      faultset doctor
    """
    from faultset.collector.platforms.local.checks import checks
    from faultset.datasets.console import show_records
    from faultset.datasets.errors import PlatformError

    rows = checks()
    show_records(rows, columns={"check": "check", "ok": "ok", "found": "found", "remedy": "remedy"}, as_json=as_json)
    wrong = [row for row in rows if not row["ok"]]
    if wrong:
        raise PlatformError(f"{len(wrong)} of {len(rows)} checks failed; first: {wrong[0]['check']}")
    if not as_json:
        click.echo("this machine can run the embedded platform")
