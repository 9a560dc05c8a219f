"""Background work of services: consumers of messages, tasks, heaps, and work that commands start."""
