"""Everything that `calibrate` fits on validation images and keeps in a run."""
