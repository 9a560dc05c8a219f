"""Read files from untrusted sources: regular files only, with limits on size and nesting."""
