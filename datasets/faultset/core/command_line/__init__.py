"""The command line: options, completion of names, progress, output that a terminal can show."""
