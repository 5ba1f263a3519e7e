"""The prediction folder: maps, rows, files and record."""
