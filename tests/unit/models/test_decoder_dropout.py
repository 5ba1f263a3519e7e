"""Dropout in the decoder: where it is, when it acts, and decoders that lost channels for good."""

import pytest
import torch
from torch import nn

from segconf.config.schema import ModelConfig
from segconf.methods.method import methods
from segconf.models.decoder import DropoutBlock, FixedDropout, thinned

METHODS = ("mcdropout", "aleatoric")
BLOCKS = 5


def network(method="mcdropout", dropout=0.3, seed=0):
    config = ModelConfig(encoder="tu-test_resnet", encoder_weights="none", dropout=dropout)
    torch.manual_seed(seed)
    return methods.get(method).build(config)


def images(count=2):
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("method", METHODS)
def test_every_block_of_the_decoder_shows_its_dropout(method):
    model = network(method)
    for number in range(BLOCKS):
        dropout = model.get_submodule(f"decoder.blocks.{number}.dropout")
        assert isinstance(dropout, nn.Dropout2d)
        assert dropout.p == 0.3
    assert str(model.decoder).count("(dropout): Dropout2d(p=0.3, inplace=False)") == BLOCKS


@pytest.mark.parametrize("method", ["softmax", "crl", "consistency"])
def test_other_methods_have_none(method):
    assert not any(isinstance(module, DropoutBlock) for module in network(method).modules())


def test_dropout_changes_neither_the_first_weights_nor_the_evaluation():
    plain, dropping = network("softmax").eval(), network("mcdropout").eval()
    with torch.no_grad():
        assert torch.equal(plain(images()), dropping(images()))


def test_aleatoric_has_a_log_variance_for_every_logit():
    with torch.no_grad():
        assert network("aleatoric").eval()(images()).shape == (2, 4, 32, 32)


class Untouched(nn.Module):
    """A block that does nothing: only the dropout is left."""

    def forward(self, feature_map, target_height, target_width, skip_connection=None):  # noqa: ARG002
        return feature_map


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_whole_channels_are_dropped_in_training(share):
    torch.manual_seed(1)
    features = torch.rand(64, 256, 2, 2) + 1
    dropped = DropoutBlock(Untouched(), share).train()(features, 2, 2)
    whole = dropped.flatten(2)
    assert ((whole == 0).all(dim=2) | (whole != 0).all(dim=2)).all()
    kept = whole[..., 0] != 0
    # 16384 channels: the share of those dropped has a standard deviation of 0.0036.
    assert 1 - kept.float().mean().item() == pytest.approx(share, abs=0.015)
    torch.testing.assert_close(whole[kept], (features.flatten(2) / (1 - share))[kept])


def test_a_thinned_decoder_shares_the_weights():
    decoder = network().eval().decoder
    twin = thinned(decoder, torch.Generator().manual_seed(0))
    own = dict(decoder.named_parameters()) | dict(decoder.named_buffers())
    for name, tensor in (*twin.named_parameters(), *twin.named_buffers()):
        if not name.endswith("dropout.factors"):
            assert tensor is own[name]
    assert all(isinstance(block.dropout, nn.Dropout2d) for block in decoder.blocks)


def test_fixed_dropout_drops_the_asked_share_and_scales_the_rest():
    dropout = FixedDropout(10_000, 0.3, torch.Generator().manual_seed(0))
    dropped = dropout(torch.ones(2, 10_000, 1, 3))
    assert torch.equal(dropped[0], dropped[1])
    values, counts = dropped[0, :, 0, 0].unique(return_counts=True)
    assert values.tolist() == pytest.approx([0, 1 / 0.7])
    assert counts[0].item() == pytest.approx(3000, abs=150)  # standard deviation 46
    assert (dropped.std(dim=3) == 0).all()


def test_thinned_decoders_follow_their_generator():
    decoder = network().eval().decoder

    def factors(seed):
        twin = thinned(decoder, torch.Generator().manual_seed(seed))
        return torch.cat([block.dropout.factors.flatten() for block in twin.blocks])

    assert len(factors(0)) == 256 + 128 + 64 + 32 + 16
    assert torch.equal(factors(0), factors(0))
    assert not torch.equal(factors(0), factors(1))


def test_a_decoder_without_dropout_cannot_be_thinned():
    with pytest.raises(TypeError, match="no dropout"):
        thinned(network("softmax").decoder, torch.Generator())
