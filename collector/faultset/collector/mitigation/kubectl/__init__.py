"""A front of a platform that takes commands as kubectl does, and never starts a shell."""
