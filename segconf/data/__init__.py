"""Cases, data sets, splits, the pixel cache and training batches."""
