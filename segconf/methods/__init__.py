"""Methods, one file each: what it trains, what it needs, how it predicts."""
