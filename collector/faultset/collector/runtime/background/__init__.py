"""What a service does that no request asks for: consumers of messages, tasks, and work that commands leave behind."""
