"""Figures for papers; the only package that imports matplotlib."""
