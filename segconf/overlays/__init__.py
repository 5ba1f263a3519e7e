"""Pictures for clinicians: the contour, low confidence, and a legend."""
