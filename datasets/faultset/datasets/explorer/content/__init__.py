"""What the explorer shows of one episode, as plain lists and numbers."""
