"""CIFAR in its binary files, written by hand: four records a file."""

import numpy as np

NAMES = ("plane", "car", "bird")


def record(labels, seed):
    """A record, and the image (32, 32, 3) in it: red, green and blue plane, row by row."""
    image = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)
    planes = [image[row, column, c] for c in range(3) for row in range(32) for column in range(32)]
    return bytes([*labels, *planes]), image


def files_of(version):
    """Content of the files by name, and the images by the id of their case."""
    folder, names, layout = {
        10: (
            "cifar-10-batches-bin",
            "batches.meta.txt",
            [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"],
        ),
        100: ("cifar-100-binary", "fine_label_names.txt", ["train", "test"]),
    }[version]
    files, images, labels = {f"{folder}/{names}": "\n".join(NAMES).encode() + b"\n\n"}, {}, {}
    for place, file in enumerate(layout):
        content = b""
        for number in range(4):
            label = (place + number) % 3
            one, image = record([label] if version == 10 else [19, label], [place, number])
            content += one
            images[f"{file}/{number:05d}"] = image
            labels[f"{file}/{number:05d}"] = NAMES[label]
        files[f"{folder}/{file}.bin"] = content
    return files, images, labels


def write(root, files):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
