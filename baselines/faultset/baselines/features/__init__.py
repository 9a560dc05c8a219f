"""Features of an episode that several methods use: metrics, log lines, spans, events and object states."""
