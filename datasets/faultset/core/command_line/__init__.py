"""The command line: commands and their help, option types, completion, progress and output."""
