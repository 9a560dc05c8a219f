"""Start the processes of an episode and send requests between them."""
