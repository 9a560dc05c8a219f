"""Score detectors on recordings: run them online, compare their alarms with incidents, and build tables."""
