"""Metrics as people read them: titles, scales, and the numbers of the paper."""

TITLES = {
    "miou": "mIoU",
    "aurc": "AURC",
    "eaurc": "E-AURC",
    "augrc": "AUGRC",
    "fpr95": "FPR-95",
    "aupr_error": "AUPR-error",
    "ece": "ECE",
    "nll": "NLL",
    "brier": "Brier",
}


EXPONENTS = {
    "miou": 0,
    "aurc": 3,
    "eaurc": 3,
    "augrc": 3,
    "fpr95": 2,
    "aupr_error": 2,
    "ece": 2,
    "nll": 1,
    "brier": 2,
}
"""Powers of ten by which tables scale the raw values."""


HIGHER_IS_BETTER = {"miou", "aupr_error"}


def heading(metric: str) -> str:
    """Title with its scale, such as `AURC x10^3`."""
    exponent = EXPONENTS[metric]
    return TITLES[metric] + {0: "", 1: " x10"}.get(exponent, f" x10^{exponent}")


def scaled(value: float, metric: str) -> str:
    """A raw value in the scale of the table."""
    return f"{value * 10 ** EXPONENTS[metric]:.{digits(metric)}f}"


def digits(metric: str) -> int:
    """Decimals in a table."""
    return 3 if EXPONENTS[metric] == 0 else 2
