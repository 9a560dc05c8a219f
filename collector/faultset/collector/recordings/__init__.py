"""Record an application for hours; incidents are injected and undone meanwhile."""
