"""HTTP between services: servers, callers, connections and status codes."""
