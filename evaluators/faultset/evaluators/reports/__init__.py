"""A self-contained HTML page about an evaluation: no script, no network, light and dark."""
