"""The experiment file, typed and checked."""
