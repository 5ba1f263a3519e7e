"""Pixels and geometry to and from disk."""
