"""The folded decoder against the library's own, and against an upsampled map that is written."""

import pytest
import segmentation_models_pytorch as smp
import torch
from torch import nn
from torch.nn.functional import conv2d

from segconf.config.schema import ModelConfig
from segconf.models import decoder as folding
from segconf.models.decoder import DEEPEST, FoldedBlock, fold_upsampling
from segconf.models.unet import build_unet


def pair(encoder, *, classes=2):
    """Our network and the library's, with the same weights, in double precision."""
    torch.manual_seed(0)
    ours = build_unet(ModelConfig(encoder=encoder, encoder_weights="none", classes=classes))
    theirs = smp.Unet(encoder, encoder_weights=None, classes=classes)
    theirs.load_state_dict(ours.state_dict())  # strict: the names are the same
    return ours.double(), theirs.double()


def images(size=(64, 96)):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, *size, generator=generator, dtype=torch.double)


# resnet18 has features at every stage; mit_b0 and convnext have none at half of the resolution.
@pytest.mark.parametrize("encoder", ["resnet18", "mit_b0", "tu-test_convnext", "tu-test_resnet"])
@pytest.mark.parametrize("training", [True, False])
def test_logits_are_those_of_the_library(encoder, training):
    ours, theirs = pair(encoder, classes=3)
    for model in (ours, theirs):
        model.train(training)
    torch.manual_seed(2)  # some encoders drop paths in training
    said = ours(images())
    torch.manual_seed(2)
    torch.testing.assert_close(said, theirs(images()), rtol=1e-9, atol=1e-9)


def test_weights_can_be_lent_for_a_call():
    ours, theirs = pair("tu-test_resnet")
    weights = {name: value.detach() * 1.1 for name, value in ours.state_dict().items()}
    theirs.load_state_dict(weights)
    said = torch.func.functional_call(ours.eval(), weights, images())
    torch.testing.assert_close(said, theirs.eval()(images()), rtol=1e-9, atol=1e-9)


def test_gradients_are_those_of_the_library():
    ours, theirs = pair("tu-test_resnet")
    for model in (ours, theirs):
        model(images()).square().mean().backward()
    wanted = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    found = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-10)


def test_all_blocks_but_the_deepest_are_folded():
    ours, theirs = pair("tu-test_resnet")
    folded = [isinstance(block, FoldedBlock) for block in ours.decoder.blocks]
    assert folded == [False] * DEEPEST + [True] * (len(theirs.decoder.blocks) - DEEPEST)


def bare(kernel):
    """A block of one input and one output channel that only convolves."""
    convolution = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    convolution.weight.data = torch.tensor(kernel, dtype=torch.float32).reshape(1, 1, 3, 3)
    block = nn.Module()
    block.conv1 = nn.Sequential(convolution)
    block.conv2 = nn.Identity()
    return FoldedBlock(block)


def test_one_pixel_by_hand():
    # The pixel doubled: [[5, 5], [5, 5]], zeros around. Weights 1 to 9, row by row.
    block = bare([1, 2, 3, 4, 5, 6, 7, 8, 9])
    said = block(torch.full((1, 1, 1, 1), 5.0), 2, 2)
    # Upper left output: the weights 5, 6, 8, 9 meet the pixel; upper right: 4, 5, 7, 8; ...
    assert said.tolist() == [[[[5 * 28, 5 * 24], [5 * 16, 5 * 12]]]]


@pytest.mark.parametrize("target", [(8, 10), (7, 10), (9, 11), (4, 5), (16, 20)])
def test_any_size_equals_the_written_map(target):
    block = bare([1, -2, 3, 0, 5, -6, 7, 8, 9])
    features = torch.randn(1, 1, 4, 5, generator=torch.Generator().manual_seed(0))
    rows = [row * 4 // target[0] for row in range(target[0])]
    columns = [column * 5 // target[1] for column in range(target[1])]
    written = features[:, :, rows][:, :, :, columns]
    wanted = conv2d(written, block.conv1[0].weight, padding=1)
    torch.testing.assert_close(block(features, *target), wanted)


class Wrapped(nn.Module):
    """A block that another version of the library might have: no convolutions by their names."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, *inputs, **options):
        return self.block(*inputs, **options)


def plain_unet():
    return smp.Unet("resnet18", encoder_weights=None, classes=2)


def test_a_folded_network_is_verified_and_draws_no_random_number(caplog):
    network = plain_unet()
    before = torch.get_rng_state()
    assert fold_upsampling(network, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert network.training
    assert not caplog.records


def test_a_decoder_that_cannot_be_folded_stays_as_it_is(caplog):
    network = plain_unet()
    network.decoder.blocks[3] = Wrapped(network.decoder.blocks[3])
    blocks = list(network.decoder.blocks)
    pixels = torch.rand(1, 3, 64, 64)
    expected = network.eval()(pixels)
    assert not fold_upsampling(network, 3)
    assert list(network.decoder.blocks) == blocks
    assert torch.equal(network(pixels), expected)
    assert "the decoder is used as it is" in caplog.text


def test_a_folded_network_that_differs_is_not_used(caplog, monkeypatch):
    network = plain_unet().eval()
    pixels = torch.rand(1, 3, 64, 64)
    expected = network(pixels)
    monkeypatch.setattr(folding, "SPREAD", folding.SPREAD + 0.5)
    assert not fold_upsampling(network, 3)
    assert torch.equal(network(pixels), expected)
    assert "outputs differ by" in caplog.text
