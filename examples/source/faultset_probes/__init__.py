"""Two sources of telemetry: a table of probes of the entry, and a series of the machine's load."""
