"""The tools of an episode for agents: with a submission, in Inspect, over MCP, as AIOpsLab's actions, or live."""
