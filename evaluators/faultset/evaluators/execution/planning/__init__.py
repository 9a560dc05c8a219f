"""What an evaluation will run: folds, baselines, alarms, and what each is given."""
