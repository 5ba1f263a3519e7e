"""Errors that a user can cause and fix: the place, the problem, the way out."""


class SegconfError(Exception):
    """Base of all errors that end in one message instead of a traceback."""


class ConfigError(SegconfError):
    """The experiment file, or a value given on the command line, cannot be used."""


class DataError(SegconfError):
    """Images, masks or lists of ids are missing, broken or contradict each other."""


class CheckpointError(SegconfError):
    """A run folder or a weights file cannot be used as asked."""


class TrainingError(SegconfError):
    """A run cannot start or go on."""


class FileError(SegconfError):
    """A file or a folder cannot be written: a full disk, no permission, something in its place.

    Attributes:
        path: what was to be written.
        reason: why it was not.
    """

    def __init__(self, path: object, reason: str, way_out: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: cannot be written ({reason}). {way_out}")
