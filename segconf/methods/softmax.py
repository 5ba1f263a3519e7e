"""The baseline: maximum softmax probability of a network trained with cross-entropy."""

from segconf.methods.method import Method, register


@register
class Softmax(Method):
    """Cross-entropy only; confidence is the maximum softmax probability."""

    name = "softmax"
