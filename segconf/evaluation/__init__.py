"""A run, or the maps of any tool, measured against masks."""
