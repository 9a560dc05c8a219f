"""Tasks for Inspect: questions about recorded episodes, and the repair of live ones."""
