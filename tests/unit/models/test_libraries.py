"""The libraries of the networks, imported without the compiler of PyTorch, work as they are."""

import subprocess
import sys

import torch

from segconf.config.schema import ModelConfig
from segconf.models.libraries import smp
from segconf.models.unet import build_unet

ENCODER = "tu-test_efficientnet"


def test_weights_are_those_of_the_library_for_the_same_seed():
    config = ModelConfig(encoder=ENCODER, encoder_weights="none")
    torch.manual_seed(7)
    expected = smp.Unet(ENCODER, encoder_weights=None, in_channels=3, classes=2).state_dict()
    torch.manual_seed(7)
    found = build_unet(config).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_compiler_is_there_when_it_is_called():
    """In a process of its own: here it may have been loaded by another test."""
    code = (
        "import sys\n"
        "from segconf.models.libraries import timm\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "from torchvision.ops import roi_align\n"
        "module = sys.modules['torchvision.ops.roi_align']\n"
        "print(module.is_compile_supported('cpu'), 'torch._dynamo' in sys.modules)\n"
        "import torch._dynamo.utils\n"
        "print(torch._dynamo.utils.is_compile_supported('cpu'))\n"
        "print(torch.compiler.disable.__module__)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    here, loaded, there, module = found.stdout.split()
    assert (loaded, here, module) == ("True", there, "torch.compiler")
