"""Language models as agents call them: servers that speak OpenAI's protocol, and replies that are kept and replayed."""
