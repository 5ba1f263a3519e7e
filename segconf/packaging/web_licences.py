"""Licences of what a page carries."""

import html

from segconf.inference.torch_model import TorchModel
from segconf.packaging.description import NO_LICENCE, licence
from segconf.packaging.web_runtime import VERSION

_MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this \
software and associated documentation files (the "Software"), to deal in the Software \
without restriction, including without limitation the rights to use, copy, modify, \
merge, publish, distribute, sublicense, and/or sell copies of the Software, and to \
permit persons to whom the Software is furnished to do so, subject to the following \
conditions:

The above copyright notice and this permission notice shall be included in all copies \
or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, \
INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A \
PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT \
HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF \
CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE \
OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""


def licences(model: TorchModel) -> str:
    """Licences of the runtime, of the page and of the model, as text of an HTML page."""
    own = licence(model)
    words = "its licence is not stated" if own == NO_LICENCE else own
    text = (
        f"ONNX Runtime Web {VERSION}\nMIT License\n"
        f"Copyright (c) Microsoft Corporation\n\n{_MIT}\n\n"
        "This page is part of segconf\nMIT License\nCopyright (c) 2026 The segconf developers\n"
        "Under the same terms as above.\n\n"
        f"Model {model_name(model)}: {words}\n"
    )
    return html.escape(text)


def model_name(model: TorchModel) -> str:
    """How a page calls its model: it does not tell the folders above it."""
    return model.choice.path.name
