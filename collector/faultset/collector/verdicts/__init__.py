"""Whether a fault showed: the tests on client requests and on the target, and the verdict."""
