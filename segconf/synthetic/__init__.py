"""Synthetic dermoscopy with exact masks, for the demo and the tests."""
