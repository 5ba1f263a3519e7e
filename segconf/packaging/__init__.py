"""Packages for other programs: ONNX files, MONAI bundles, DICOM objects."""
