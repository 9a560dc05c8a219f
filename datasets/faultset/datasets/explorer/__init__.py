"""Looking at episodes in a browser: what the page shows is computed here, drawn by its own script."""
