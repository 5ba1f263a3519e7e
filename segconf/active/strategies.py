"""The ways to rank images for annotation, by name and in words."""

from typing import Literal, get_args

from segconf.errors import ConfigError

Strategy = Literal[
    "confidence",
    "boundary-confidence",
    "consistency",
    "entropy",
    "expected-dice",
    "coreset",
    "random",
]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
QUANTITIES: dict[Strategy, str] = {
    "confidence": "mean confidence",
    "boundary-confidence": "border confidence",
    "consistency": "mean consistency",
    "entropy": "mean entropy",
    "expected-dice": "expected Dice",
    "coreset": "distance",
    "random": "random number",
}
"""What the score of a strategy is."""


def as_strategy(name: str, *, option: str = "--strategy") -> Strategy:
    """The strategy of that name."""
    for strategy in STRATEGIES:
        if strategy == name:
            return strategy
    raise ConfigError(f"{option} {name}: unknown. Choose one of {', '.join(STRATEGIES)}.")


def asks_for_highest(strategy: Strategy) -> bool:
    """Whether a high score, not a low one, calls for a label."""
    return strategy in {"entropy", "coreset"}
