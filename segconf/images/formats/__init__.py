"""Image formats, one file each."""
