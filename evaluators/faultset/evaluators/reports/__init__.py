"""Self-contained HTML pages about evaluations, without scripts and network access."""
