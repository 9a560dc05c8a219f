"""Show episodes in a browser: compute the content of the page that its script draws."""
