"""What is recorded of an episode: its context and tables, while it goes on and when it has ended."""
