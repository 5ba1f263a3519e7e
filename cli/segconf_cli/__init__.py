"""The `segconf` command: parse, call the library, print."""
