"""Log lines: templates, masks, sequences and scores."""
