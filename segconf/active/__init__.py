"""Active learning: which images to annotate next, and a simulation of the protocol."""
