"""What a service does that no request asks for: consumers of messages, and tasks."""
