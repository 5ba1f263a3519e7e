"""Runs side by side: compare, benchmark, surrogates."""
