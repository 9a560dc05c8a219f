"""Tasks for Inspect: recorded episodes with their questions, tools and scores, and the repair of live ones."""
