"""Apache Kafka in its own name: one broker with its controller, its accounts and its clients."""
