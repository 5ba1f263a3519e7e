"""What a clinician looks at: the contour, low confidence where it matters, and a legend."""

from segconf.overlays.picture import MAX_SIDE, NOTICE, STYLES, Style, overlay
from segconf.overlays.scale import Scale

__all__ = ["MAX_SIDE", "NOTICE", "STYLES", "Scale", "Style", "overlay"]
