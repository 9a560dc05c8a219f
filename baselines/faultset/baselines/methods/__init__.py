"""Detection, localization and diagnosis methods."""
