"""Weights of a file against the reference GGUF package, to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from support import gguf_bytes
from support.tiny import MATRIX_TYPES, read_weights, write_tiny_model
from ultrafast.errors import ModelFileError
from ultrafast.models.dequantize import dequantize
from ultrafast.models.ggml_type import GgmlType
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import MATRIX_TYPES as SUPPORTED


@pytest.mark.parametrize("type", MATRIX_TYPES, ids=lambda kind: kind.name)
def test_every_type_gives_the_bits_of_the_reference(tmp_path: Path, type: Type) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", type=type, hidden=256, ffn=512, layers=1)
    expected = read_weights(path)
    with GgufFile(path) as file:
        for name, tensor in file.tensors.items():
            found = dequantize(file, name)
            assert found.shape == tensor.shape
            assert np.array_equal(found, expected[name]), name


def test_all_types_that_the_engine_runs_are_tested() -> None:
    assert {GgmlType(kind) for kind in MATRIX_TYPES} == set(SUPPORTED)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    iq4_nl = 20
    path.write_bytes(gguf_bytes.gguf(tensors=[gguf_bytes.tensor("odd", type=iq4_nl)], data=bytes(18)))
    with GgufFile(path) as file:
        with pytest.raises(ModelFileError, match=r"'odd' has type IQ4_NL, which is not supported; supported: F32, F16"):
            dequantize(file, "odd")
        with pytest.raises(ModelFileError, match=r"'no\.such' is missing"):
            dequantize(file, "no.such")
