"""Labels of a run, and the check that a continued run is the same run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from segconf.config.differences import setting_differences
from segconf.config.schema import ExperimentConfig
from segconf.csv_tables import read_table
from segconf.data.cases import CaseSet, raise_problems
from segconf.data.corrections import ReviewedCase, reviewed_cases
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.data.decisions import decided_cases
from segconf.data.id_lists import read_id_list
from segconf.data.label_tables import listed_classes
from segconf.data.splits import ReviewedLabel, Split, split_cases
from segconf.errors import DataError, TrainingError
from segconf.images.image_format import format_of
from segconf.images.io import image_hash
from segconf.methods.method import method_of
from segconf.processes import ProcessGroup
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder


def find_split(
    config: ExperimentConfig,
    dataset: str,
    data: Path | None,
    group: ProcessGroup,
    resumed: RunFolder | None,
) -> tuple[CaseSet, Split]:
    """Find and split the data; no picture is opened yet."""
    wanted = FindOptions.of(config.data)
    found, split = label(find_cases(dataset, data, options=wanted), config, resumed)
    if not any(case.is_labeled for case in split.validation):
        raise_problems(found.problems, found.root)  # they may be why there is none
        raise DataError(
            f"{found.root}: no validation images with masks, but the best epoch is chosen on them. "
            "Add a val/ folder, or raise data.validation_fraction."
        )
    if len(split.labeled) < len(found.class_names):
        raise_problems(found.problems, found.root)
        raise DataError(
            f"{found.root}: {len(found.class_names)} classes, but {len(split.labeled)} labeled "
            "training images: every class needs one at least. Label more, or use fewer classes."
        )
    for count, name in ((len(split.labeled), "labeled"), (len(split.unlabeled), "unlabeled")):
        if 0 < count < group.world:
            raise DataError(
                f"{found.root}: {count} {name} images cannot feed {group.world} processes. "
                f"Use at most {count} processes."
            )
    return found, split


def label(
    found: CaseSet, config: ExperimentConfig, resumed: RunFolder | None = None
) -> tuple[CaseSet, Split]:
    """Choose the labeled images of a data set as the configuration says.

    Args:
        found: the data set.
        config: of the run.
        resumed: the run that is continued. It remembers its labels: the lists that it was started
            with may have changed since.

    Returns:
        The data set in the parts of the earlier run, if there is one, and its split.
    """
    options = config.data
    names: Path | Sequence[str] | None = options.labeled_list
    reviewed: dict[str, ReviewedLabel] = {}
    before: RunData | None = resumed.data() if resumed is not None else None
    if before is None and options.labels_from_query is not None:
        before = queried_run(options.labels_from_query).data()
        names = [*_own_masks(before), *read_id_list(options.labels_from_query)]
    elif before is not None and any((names, options.labels_from_query, options.corrections)):
        names = _own_masks(before)
    if before is not None:
        found = before.arranged(found)
        reviewed = _remembered(before, found)
    if resumed is None:
        for maps in options.corrections:
            reviewed |= reviewed_labels(maps, found)
    _check_files(reviewed)
    counted = options.labeled if names is None else None
    seed = config.training.seed if options.split_seed is None else options.split_seed
    split = split_cases(found, labeled=counted, labeled_list=names, seed=seed, reviewed=reviewed)
    return found, split


def queried_run(queue: Path) -> RunFolder:
    """The run whose images a list of `segconf query` ranks.

    Raises:
        DataError: the file was not written by `segconf query`, or its run is gone.
    """
    way_out = "Give the list that `segconf query` wrote, or a list of ids as data.labeled_list."
    runs = {row["run"] for row in read_table(queue, ["run"], error=DataError, way_out=way_out)}
    if len(runs) != 1 or not all(name.strip() and "\0" not in name for name in runs):
        raise DataError(f"{queue}: names {len(runs)} runs instead of one. {way_out}")
    folder = queue.parent / runs.pop()
    if not folder.is_dir():
        raise DataError(
            f"{queue}: the run that was queried is not at {folder} any more, but the labels of the "
            "earlier rounds are listed there. Put it back, or list all ids in data.labeled_list."
        )
    return RunFolder(folder)


def reviewed_labels(maps: Path, found: CaseSet) -> dict[str, ReviewedLabel]:
    """Accepted and corrected masks or labels of a prediction folder, by id of the training image.

    Of a volume of which one slice was corrected, that slice alone is a label.

    Raises:
        DataError: a reviewed case is no training image, its image has changed since, or it has a
            class that the data set does not have.
    """
    reviewed = {one.case: one for one in reviewed_cases(maps)}
    words = {name: "corrected" if one.corrected else "accepted" for name, one in reviewed.items()}
    hashes = {name: one.image_sha256 for name, one in reviewed.items()}
    matched, unknown = decided_cases(words, found.training, hashes)
    problems = [f"{name}: {words[name]}, but no training image of that name" for name in unknown]
    labels: dict[str, ReviewedLabel] = {}
    for name, cases in matched.items():
        one, image = reviewed[name], cases[0].image_path
        if problem := _kind_problem(one, found):
            problems.append(f"{name}: {words[name]} {problem}")
            continue
        is_file = one.image_sha256 and cases[0].record is None
        there = is_file and all(file.exists() for file in format_of(image).files(image))
        if there and image_hash(image) != one.image_sha256:
            problems.append(f"{name}: {words[name]}, but {image} is another image than it was then")
            continue
        number = found.class_names.index(one.label) if one.label else None
        for case in cases:
            if one.slice is None or case.slice_index in (None, one.slice):
                labels[case.id] = ReviewedLabel(one.corrected, one.path, number)
    raise_problems(problems, maps)
    return labels


def _kind_problem(reviewed: ReviewedCase, found: CaseSet) -> str:
    """Why what was reviewed is of no use for a data set; empty where it is."""
    wants_label = found.task == "classification"
    if wants_label != bool(reviewed.label):
        kinds = ("a label", "masks") if reviewed.label else ("a mask", "labels")
        return f"as {kinds[0]}, but the data set has {kinds[1]}"
    if wants_label and reviewed.label not in found.class_names:
        return f"as '{reviewed.label}', which is no class ({listed_classes(found.class_names)})"
    return ""


def _own_masks(before: RunData) -> list[str]:
    """Labeled images of a run whose mask belongs to the data set."""
    reviewed = {*before.accepted, *before.corrected}
    return [id_ for id_ in before.ids["labeled"] if id_ not in reviewed]


def _remembered(before: RunData, found: CaseSet) -> dict[str, ReviewedLabel]:
    """What the reviews gave to the cases of an earlier run.

    Raises:
        DataError: a class is gone.
    """
    numbers = {name: number for number, name in enumerate(found.class_names)}
    remembered: dict[str, ReviewedLabel] = {}
    problems: list[str] = []
    for values, corrected in ((before.accepted, False), (before.corrected, True)):
        for id_, value in values.items():
            if found.task == "segmentation":
                remembered[id_] = ReviewedLabel(corrected, Path(value))
            elif value in numbers:
                remembered[id_] = ReviewedLabel(corrected, label=numbers[value])
            else:
                problems.append(f"{id_}: was reviewed as '{value}', which is no class any more")
    raise_problems(problems, found.root)
    return remembered


def _check_files(reviewed: dict[str, ReviewedLabel]) -> None:
    gone = {
        f"{label.path}: {'corrected' if label.corrected else 'accepted'} as the label of {id_}, "
        "but gone": label.path
        for id_, label in reviewed.items()
        if label.path is not None and not label.path.is_file()
    }
    if gone:
        raise_problems(list(gone), next(iter(gone.values())).parent)


ENDS = ("training.epochs", "training.patience")
"""Settings that decide only when a run ends."""


def check_same_run(run: RunFolder, config: ExperimentConfig, data: RunData) -> None:
    """Refuse to continue a run with other settings or other data, and name every difference."""
    changed = setting_differences(run.config(), config)
    differences = [text for key, text in changed.items() if key not in ENDS]
    if config.training.epochs < run.config().training.epochs:
        differences.append(changed["training.epochs"])
    earlier = run.config().training
    if config.training.epochs != earlier.epochs and config.training.schedule != "constant":
        differences.append("training.epochs decides the learning rate of every step")
    if config.training.epochs != earlier.epochs and method_of(config).epochs_are_fixed:
        differences.append("training.epochs decides when the calibration of the method begins")
    planned = method_of(config).snapshot_epochs(config.training)
    taken = tuple(epoch for epoch in planned if epoch <= earlier.epochs)
    if taken != method_of(run.config()).snapshot_epochs(earlier):
        differences.append(
            "training.epochs decides when snapshots are taken, and they have been taken already"
        )
    old = run.data()
    for role in ("labeled", "unlabeled", "validation"):
        missing = sorted(set(old.ids[role]) - set(data.ids[role]))
        added = sorted(set(data.ids[role]) - set(old.ids[role]))
        if missing or added:
            example = (missing or added)[0]
            differences.append(
                f"{role} images: {len(missing)} gone, {len(added)} new, such as {example}"
            )
    _refuse(run, differences)


def check_same_pixels(run: RunFolder, pixels: Mapping[str, str]) -> None:
    """Refuse to continue a run whose images or masks have other content than before.

    Args:
        run: the run to continue. One of an earlier version does not know its pixels.
        pixels: `TrainingPixels.hashes` of what is there now.
    """
    known = run.data().pixels
    differences = [
        f"the {kind} have other pixels than when the run began: a file was exchanged"
        for kind, sha256 in pixels.items()
        if known.get(kind, sha256) != sha256
    ]
    _refuse(run, differences)


def _refuse(run: RunFolder, differences: Sequence[str]) -> None:
    """Name every difference, if there is one."""
    if differences:
        raise TrainingError(
            "\n".join(
                [
                    f"{run.path}: cannot be continued, because it would not be the same run:",
                    *(f"  {difference}" for difference in differences),
                    "Start a new run, or give the settings and the data it began with.",
                ]
            )
        )
