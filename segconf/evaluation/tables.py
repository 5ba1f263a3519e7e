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
PAPER_COLUMNS = ("miou", "aurc", "eaurc", "fpr95", "ece", "nll", "brier")
HIGHER_IS_BETTER = {"miou", "aupr_error"}

PUBLISHED = {
    125: {
        "softmax": (0.801, 34.36, 31.33, 60.90, 6.45, 3.82, 13.96),
        "aes": (0.802, 21.12, 18.07, 57.26, 5.46, 4.17, 12.84),
        "mcdropout": (0.801, 30.23, 27.19, 61.45, 6.36, 4.05, 13.88),
        "aleatoric": (0.802, 27.66, 24.62, 59.55, 6.21, 3.86, 13.68),
        "crl": (0.810, 22.14, 19.33, 62.15, 4.11, 2.86, 12.25),
        "consistency": (0.812, 14.11, 11.23, 56.81, 3.05, 2.31, 11.46),
    },
    250: {
        "softmax": (0.819, 28.91, 26.45, 58.51, 5.62, 3.35, 12.45),
        "aes": (0.819, 18.08, 15.60, 54.09, 4.57, 3.41, 11.38),
        "mcdropout": (0.819, 25.38, 22.89, 58.31, 5.45, 3.39, 12.27),
        "aleatoric": (0.817, 25.96, 23.37, 57.80, 5.49, 3.43, 12.43),
        "crl": (0.818, 16.43, 13.90, 62.56, 3.93, 2.60, 11.64),
        "consistency": (0.817, 12.79, 10.21, 54.51, 2.56, 2.23, 10.71),
    },
    500: {
        "softmax": (0.822, 23.45, 21.09, 56.90, 5.22, 2.98, 11.88),
        "aes": (0.823, 15.74, 13.39, 54.29, 4.39, 3.10, 11.10),
        "mcdropout": (0.821, 21.21, 18.83, 56.69, 4.61, 2.68, 11.49),
        "aleatoric": (0.821, 21.32, 18.96, 56.41, 5.07, 3.20, 11.73),
        "crl": (0.822, 14.04, 11.64, 55.46, 2.82, 2.33, 10.64),
        "consistency": (0.823, 11.85, 9.42, 54.14, 2.48, 2.08, 10.44),
    },
    2000: {
        "softmax": (0.831, 16.39, 14.29, 53.69, 4.67, 2.87, 10.94),
        "aes": (0.829, 12.54, 10.40, 51.02, 3.98, 3.09, 10.40),
        "mcdropout": (0.834, 15.41, 13.40, 54.32, 4.51, 2.86, 10.69),
        "aleatoric": (0.828, 14.81, 12.66, 54.37, 4.57, 3.04, 10.94),
        "crl": (0.834, 10.17, 8.08, 51.83, 2.61, 2.02, 9.76),
        "consistency": (0.838, 11.18, 9.17, 52.27, 2.23, 1.89, 9.49),
    },
}
"""ISIC 2017 test, 600 images, UNet-ResNet34: labels, method, PAPER_COLUMNS in their scales."""


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
