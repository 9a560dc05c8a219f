"""An emulated kubectl over a recording: it reads, pipes into a few built-in filters, and never starts a process."""
