"""Reading what somebody else has made: regular files only, JSON with limits, text fit for a terminal."""
