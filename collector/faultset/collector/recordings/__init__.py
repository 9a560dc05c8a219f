"""Record an application for hours while incidents are injected and undone."""
