"""Result rows and stored answers of an evaluation, with their provenance."""
