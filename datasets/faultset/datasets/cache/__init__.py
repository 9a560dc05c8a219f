"""What is kept beside a dataset to save time; part of no version."""
