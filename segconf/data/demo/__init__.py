"""Synthetic dermoscopy with exact masks: data to try everything on, offline and in seconds."""

from segconf.data.demo.archive import GENERATOR_VERSION, DemoParameters, write_demo_dataset
from segconf.data.demo.render import generate_case
from segconf.data.demo.sheet import contact_sheet

__all__ = [
    "GENERATOR_VERSION",
    "DemoParameters",
    "contact_sheet",
    "generate_case",
    "write_demo_dataset",
]
