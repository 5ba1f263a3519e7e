"""DICOM files as scanners and cameras write them, made with pydicom alone."""

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import (
    CTImageStorage,
    EnhancedMRImageStorage,
    ExplicitVRLittleEndian,
    SecondaryCaptureImageStorage,
    generate_uid,
)

PATIENT = "Quixotte^Zelda"
OBLIQUE = [0.8, 0.6, 0.0, 0.0, 0.0, -1.0]
"""Row and column directions of a plane that is parallel to no axis."""


def new_object(kind, *, modality="CT"):
    """What every object has; `PATIENT` in all elements that name a person."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.MediaStorageSOPClassUID = kind
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = kind
    dataset.SOPInstanceUID = generate_uid()
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    dataset.StudyInstanceUID = generate_uid()
    dataset.SeriesInstanceUID = generate_uid()
    dataset.PatientName = PATIENT
    dataset.PatientID = "QUIXOTTE-0815"
    dataset.PatientBirthDate = "19700101"
    dataset.PatientSex = "F"
    dataset.StudyID = "1"
    dataset.StudyDate = dataset.ContentDate = "20260101"
    dataset.StudyTime = dataset.ContentTime = "120000"
    dataset.AccessionNumber = ""
    dataset.ReferringPhysicianName = ""
    dataset.Modality = modality
    dataset.Manufacturer = "none"
    dataset.SeriesNumber = dataset.InstanceNumber = 1
    return dataset


def set_pixels(dataset, values, *, photometric="MONOCHROME2"):
    """Pixels (H, W), (N, H, W) or (H, W, 3), uncompressed."""
    colour = photometric in ("RGB", "YBR_FULL")
    rows, columns = values.shape[:2] if colour else values.shape[-2:]
    dataset.Rows, dataset.Columns = rows, columns
    dataset.SamplesPerPixel = 3 if colour else 1
    if colour:
        dataset.PlanarConfiguration = 0
    dataset.PhotometricInterpretation = photometric
    dataset.BitsAllocated = dataset.BitsStored = 8 * values.dtype.itemsize
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(values.dtype.kind == "i")
    dataset.PixelData = values.tobytes() + b"\0" * (values.nbytes % 2)
    return dataset


def save(dataset, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True, implicit_vr=False, little_endian=True)
    return path


def photograph(path, pixels, *, photometric="RGB", **elements):
    """A secondary capture: a picture without a place."""
    dataset = new_object(SecondaryCaptureImageStorage, modality="XC")
    dataset.ConversionType = "DI"
    set_pixels(dataset, pixels, photometric=photometric)
    for name, value in elements.items():
        setattr(dataset, name, value)
    return save(dataset, path)


def slice_object(values, position, shared, **elements):
    """One slice of a CT series; `shared` holds the UIDs that slices have in common."""
    dataset = new_object(CTImageStorage)
    dataset.StudyInstanceUID = shared["study"]
    dataset.SeriesInstanceUID = shared["series"]
    dataset.FrameOfReferenceUID = shared["frame"]
    dataset.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    dataset.PositionReferenceIndicator = ""
    dataset.AcquisitionNumber = 1
    dataset.KVP = "120"
    dataset.ImagePositionPatient = [float(value) for value in position]
    dataset.ImageOrientationPatient = OBLIQUE
    dataset.PixelSpacing = [0.5, 0.25]
    dataset.SliceThickness = "2"
    dataset.RescaleSlope, dataset.RescaleIntercept, dataset.RescaleType = "2", "-1024", "HU"
    set_pixels(dataset, values)
    for name, value in elements.items():
        setattr(dataset, name, value)
    return dataset


def positions(count, *, step=2.0):
    """Places of oblique slices, `step` mm apart across the plane."""
    normal = np.cross(OBLIQUE[:3], OBLIQUE[3:])
    return np.array([-40.0, 7.0, 3.0]) + step * np.arange(count)[:, None] * normal


def series(folder, volume, *, places=None, **elements):
    """A CT series of (D, H, W) int16 values; names of files do not follow the places."""
    shared = {name: generate_uid() for name in ("study", "series", "frame")}
    places = positions(len(volume)) if places is None else places
    order = np.random.default_rng(0).permutation(len(volume))
    for number, (values, place) in enumerate(zip(volume, places, strict=True)):
        dataset = slice_object(values, place, shared, InstanceNumber=int(order[number]), **elements)
        save(dataset, folder / f"QUIXOTTE_ZELDA_{order[number]:03d}.dcm")
    return shared["series"]


def item(**elements):
    """A sequence of one item."""
    dataset = Dataset()
    for name, value in elements.items():
        setattr(dataset, name, value)
    return Sequence([dataset])


def enhanced(path, volume, *, places=None, plane=(OBLIQUE, [0.5, 0.25]), windowed=True):
    """An enhanced multi-frame object of (D, H, W) values, its frames in reverse order.

    Without a window, values are stored as they are.
    """
    dataset = new_object(EnhancedMRImageStorage, modality="MR")
    dataset.NumberOfFrames = len(volume)
    dataset.FrameOfReferenceUID = generate_uid()
    dataset.PositionReferenceIndicator = ""
    places = positions(len(volume)) if places is None else places
    shared = Dataset()
    shared.PixelMeasuresSequence = item(PixelSpacing=plane[1], SliceThickness=2.0)
    shared.PlaneOrientationSequence = item(ImageOrientationPatient=plane[0])
    if windowed:
        shared.PixelValueTransformationSequence = item(RescaleIntercept=-5, RescaleSlope=0.5)
        shared.FrameVOILUTSequence = item(WindowCenter=60.0, WindowWidth=100.0)
    dataset.SharedFunctionalGroupsSequence = Sequence([shared])
    frames = []
    for place in places[::-1]:
        frame = Dataset()
        frame.PlanePositionSequence = item(ImagePositionPatient=[float(value) for value in place])
        frames.append(frame)
    dataset.PerFrameFunctionalGroupsSequence = Sequence(frames)
    set_pixels(dataset, np.ascontiguousarray(volume[::-1]))
    return save(dataset, path)
