"""Record an application for hours, with incidents that are injected and undone meanwhile."""
