"""What an operator would see of an application, recorded in the tables' form: objects, events, log lines."""
