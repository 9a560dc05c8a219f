"""What an administrator does inside a store's pod: long queries, limits of files, messages, and looks at the store."""
