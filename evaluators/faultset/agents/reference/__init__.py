"""Reference agents: controls without a model, and agents that were published, rewritten on one loop."""
