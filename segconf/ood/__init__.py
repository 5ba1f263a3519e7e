"""Out-of-distribution detection: features, detector, its evaluation."""
