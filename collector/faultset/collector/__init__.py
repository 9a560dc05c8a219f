"""Running fault-injection episodes and recording them as datasets."""
