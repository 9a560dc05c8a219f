"""Import formats of labelled series; each series becomes a recording."""
