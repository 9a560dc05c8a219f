"""Result rows and stored answers of an evaluation, and what they depend on."""
