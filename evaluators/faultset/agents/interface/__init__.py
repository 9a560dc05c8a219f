"""Offer an episode's tools to agents: in Inspect, over MCP, through AIOpsLab's actions, or on a live system."""
