"""The embedded platform: applications as processes of this machine."""
