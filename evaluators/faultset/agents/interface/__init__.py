"""The tools of a recorded episode for agents: with a submission, as OpenAI schemas, over MCP, as AIOpsLab's actions."""
