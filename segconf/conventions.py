"""Numbers that arrays and files of segconf agree on."""

IGNORE = 255
"""Label of a pixel that does not count: padding, or not annotated."""
FULL_SCALE = 65535
"""Level of confidence 1 in 16-bit maps; level 0 is confidence 0."""
