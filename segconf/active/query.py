"""Query: rank the images without a label, with reasons."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from segconf.active.queue import BATCH, Choice, Pool, Queue, folder_pool, run_pool
from segconf.active.strategies import (
    QUANTITIES,
    Strategy,
    asks_for_highest,
    check_strategy,
    consistency_scores,
    deepest_features,
    k_center,
    network_scores,
    random_scores,
    unit_features,
    unit_means,
)
from segconf.data.cache import Progress
from segconf.data.cases import images_of
from segconf.data.decisions import decided_cases, read_decision_rows
from segconf.devices import resolve_device
from segconf.errors import ConfigError, DataError
from segconf.inference.torch_model import TorchModel
from segconf.runs.run_folder import RunFolder

DIVERSE_FACTOR = 4
"""Best-ranked units per unit of the budget among which `diverse` spreads its choice."""
DONE = ("accept", "corrected")
"""Decisions after which nothing has to be annotated."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked.

    Attributes:
        budget: how many images can be annotated; groups where one holds several cases.
        strategy: what they are ranked by.
        pool: a folder of images; the unlabeled images of the run when not given.
        decisions: file of the review page: rejected images first, then those to edit, without
            accepted ones.
        diverse: choose with k-center among the best-ranked four times the budget.
        data: where the data set of the run lies now, if it has moved.
        seed: of the strategy `random`.
        device: auto, cpu, cuda, cuda:N or mps.
    """

    budget: int
    strategy: Strategy = "confidence"
    pool: Path | None = None
    decisions: Path | None = None
    diverse: bool = False
    data: Path | None = None
    seed: int = 0
    device: str = "auto"

    def check(self) -> None:
        """Refuse what contradicts itself."""
        if self.budget < 1:
            raise ConfigError(f"budget = {self.budget}: expected a number from 1.")
        if self.diverse and self.strategy == "coreset":
            raise ConfigError(
                "diverse = True: the strategy coreset spreads its choice already. Leave it out."
            )
        if self.pool is not None and self.strategy == "consistency":
            raise ConfigError(
                "strategy = consistency: the history knows only the images of the run, not a pool. "
                "Choose another strategy."
            )


def query(run: Path, asked: Query, *, on_progress: Progress | None = None) -> Queue:
    """Rank the images without a label.

    Args:
        run: folder of a run that has finished an epoch.
        asked: budget, strategy and pool.
        on_progress: called with a label, what is done, and how much there is.

    Raises:
        ConfigError: the query contradicts itself, or asks for more images than there are.
        DataError: run, pool or decisions cannot be read.
    """
    asked.check()
    return _Ranking(RunFolder(run), asked, on_progress).queue()


class _Ranking:
    """One query; the network and the images are loaded when they are needed."""

    def __init__(self, run: RunFolder, asked: Query, on_progress: Progress | None) -> None:
        self.run, self.asked, self.on_progress = run, asked, on_progress

    @cached_property
    def model(self) -> TorchModel:
        device = resolve_device(self.asked.device)
        return TorchModel(self.run.path, device=device, batch_size=BATCH)

    @cached_property
    def pool(self) -> Pool:
        asked, config = self.asked, self.run.config()
        if asked.pool is not None:
            if config.has_table:
                raise ConfigError(
                    "pool: this run classifies rows of a table. Leave out the pool, and add the "
                    "rows to the table of the run without a label."
                )
            return folder_pool(asked.pool, config, on_progress=self.on_progress)
        return run_pool(self.run, "unlabeled", data=asked.data, on_progress=self.on_progress)

    def queue(self) -> Queue:
        check_strategy(self.asked.strategy, self.run.config().data.task)
        urgency, notes = self._by_decision()
        available = sum(len(units) for units in urgency.values())
        if self.asked.budget > available:
            raise ConfigError(
                f"budget = {self.asked.budget}: only {available} {self.pool.unit} can be asked for."
                f" Give a number up to {available}."
            )
        if self.pool.unit == "groups":
            notes.append("the budget counts groups (volumes, patients), which are never cut")
        choose = self._spread if self.asked.strategy == "coreset" else self._ranked
        choices = tuple(choose(urgency))
        return Queue(self.run.path, self.pool, choices, tuple(notes), lambda: self.model)

    def _by_decision(self) -> tuple[dict[str, list[int]], list[str]]:
        """Positions of the units in the order in which decisions ask for them, and notes.

        A group is as urgent as the most urgent of its images. Images that are done are left out.
        """
        decided, notes = self._decided()
        for word in DONE:
            own = [case for case in self.pool.cases if decided.get(case.id) == word]
            if own:
                words = {"accept": "accepted"}.get(word, word)
                notes.append(f"{len(images_of(own))} {words} images are left out")
        self.pool = self.pool.without({i for i, word in decided.items() if word in DONE})
        urgency: dict[str, list[int]] = {"reject": [], "edit": [], "": []}
        for position, numbers in enumerate(self.pool.units()):
            given = {decided.get(self.pool.cases[number].id, "") for number in numbers}
            urgency[next(word for word in urgency if word in given)].append(position)
        return urgency, notes

    def _decided(self) -> tuple[dict[str, str], list[str]]:
        """Decisions of the review by id of the case, and notes."""
        if self.asked.decisions is None:
            return {}, []
        rows = [row for row in read_decision_rows(self.asked.decisions) if row.decision]
        decisions = {row.case: row.decision for row in rows}
        cases, hashes = self.pool.cases, {row.case: row.image_sha256 for row in rows}
        matched, unknown = decided_cases(decisions, cases, hashes)
        if decisions and not matched:
            raise DataError(
                f"{self.asked.decisions}: none of the {len(decisions)} decided images is among "
                f"the {len(images_of(cases))} that can be asked for, such as {unknown[0]}. Give "
                "the decisions about these images, or name the folder they are in as the pool."
            )
        notes = []
        if unknown:
            notes.append(
                f"{len(unknown)} decided images are not among those that can be asked for, "
                f"such as {unknown[0]}"
            )
        return {case.id: decisions[name] for name, of in matched.items() for case in of}, notes

    def _ranked(self, urgency: dict[str, list[int]]) -> list[Choice]:
        """The best scores of each urgency in turn, spread over the units if asked for."""
        scores = self._scores()
        sign = -1 if asks_for_highest(self.asked.strategy) else 1
        everyone = sorted(range(len(scores)), key=lambda unit: (sign * scores[unit], unit))
        place = {unit: place for place, unit in enumerate(everyone, start=1)}
        choices: list[Choice] = []
        for decision, units in urgency.items():
            best = sorted(units, key=lambda unit: place[unit])
            wanted = min(len(best), self.asked.budget - len(choices))
            if self.asked.diverse and wanted:
                best = best[: DIVERSE_FACTOR * wanted]
                if len(best) > wanted:
                    spread = k_center(self._features(self.pool, best), wanted)
                    best = [best[position] for position in spread.positions]
            for unit in best[:wanted]:
                words = self._reason(scores[unit], place[unit], len(everyone))
                choices.append(self._choice(unit, scores[unit], decision, words))
        return choices

    def _scores(self) -> list[float]:
        """A score for each unit of the pool."""
        asked, pool = self.asked, self.pool
        match asked.strategy:
            case "consistency":
                ids = [case.id for case in pool.cases]
                found = consistency_scores(
                    self.run.path, ids, data=asked.data, on_progress=self.on_progress
                )
                return unit_means(pool, found)
            case "random":
                return random_scores([pool.name(unit) for unit in pool.units()], seed=asked.seed)
            case strategy:
                return network_scores(strategy, self.model, pool, on_progress=self.on_progress)

    def _spread(self, urgency: dict[str, list[int]]) -> list[Choice]:
        """The farthest from all labeled and chosen units, one urgency after another."""
        labeled = run_pool(self.run, "labeled", data=self.asked.data, on_progress=self.on_progress)
        centers = self._features(labeled, range(len(labeled.units())))
        choices: list[Choice] = []
        for decision, units in urgency.items():
            wanted = min(len(units), self.asked.budget - len(choices))
            if not wanted:
                continue
            points = self._features(self.pool, units)
            spread = k_center(points, wanted, centers=centers)
            for position, distance in zip(spread.positions, spread.distances, strict=True):
                words = f"distance {distance:.4g}, farthest from labeled and chosen images"
                choices.append(self._choice(units[position], distance, decision, words))
            centers = torch.cat([centers, points[spread.positions]])
        return choices

    def _features(self, pool: Pool, units: Sequence[int]) -> Tensor:
        """Features (U, F) of units: the mean of their cases."""
        members = [pool.units()[unit] for unit in units]
        numbers = [number for own in members for number in own]
        found = deepest_features(self.model, pool, numbers, on_progress=self.on_progress)
        return unit_features(found, [len(own) for own in members])

    def _choice(self, unit: int, score: float, decision: str, words: str) -> Choice:
        has_labels = self.run.config().data.task == "classification"
        asked = "unsure in review; " if has_labels else "edited in review; "
        prefix = {"reject": "rejected in review; ", "edit": asked, "": ""}[decision]
        numbers = self.pool.units()[unit]
        return Choice(self.pool.name(numbers), score, prefix + words, numbers)

    def _reason(self, score: float, place: int, total: int) -> str:
        if self.asked.strategy == "random":
            return f"random choice of seed {self.asked.seed}"
        extreme = "highest" if asks_for_highest(self.asked.strategy) else "lowest"
        counted = extreme if place == 1 else f"{_ordinal(place)} {extreme}"
        spread = "; chosen for variety" if self.asked.diverse else ""
        quantity = QUANTITIES[self.asked.strategy]
        if self.run.config().data.task == "classification":
            quantity = quantity.removeprefix("mean ")  # of one pixel
        return f"{quantity} {score:.4g}, {counted} of {total}{spread}"


def _ordinal(number: int) -> str:
    last_two = number % 100
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if last_two in {11, 12, 13} else ending}"
