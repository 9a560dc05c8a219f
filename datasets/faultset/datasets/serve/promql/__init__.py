"""PromQL over recorded series, without any I/O."""
