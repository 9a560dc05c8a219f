"""The embedded platform, which runs applications as processes on this machine."""
