"""Next-token logits of the embedded model, and of its weights in coarser formats: what simulated endpoints say.

    python tools/make_requantised.py           # writes tests/golden/requantised.npz

Reads tests/golden/long_text.txt. Matrices are dequantised and quantised again with the gguf package; the embedding
stays. The file keeps, at evenly spaced positions, the logits of the tokens that are likeliest in the model itself:
``original``, ``q5_0`` and ``q4_0``, float16, and their ids as ``tokens``, uint16; each [positions, tokens].
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

from ultrafast import Engine
from ultrafast.models import fetch

ROOT = Path(__file__).parent.parent
POSITIONS, TOKENS = 320, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--output", type=Path, default=ROOT / "tests/golden/requantised.npz")
    arguments = parser.parse_args()
    source = fetch.resolve(arguments.model)
    original = logits_of(source)
    chosen = np.linspace(8, len(original) - 1, POSITIONS).astype(int)
    likeliest = np.argsort(-original[chosen], axis=1)[:, :TOKENS]

    def kept(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
        shifted = logits - logits.max(axis=1, keepdims=True)
        return np.take_along_axis(shifted[chosen], likeliest, axis=1).astype(np.float16)

    columns: dict[str, npt.NDArray[np.generic]] = {"tokens": likeliest.astype(np.uint16), "original": kept(original)}
    for kind in (Type.Q5_0, Type.Q4_0):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            requantise(source, path, kind)
            columns[kind.name.lower()] = kept(logits_of(path))
    np.savez_compressed(arguments.output, allow_pickle=False, **columns)


def logits_of(path: Path) -> npt.NDArray[np.float32]:
    with Engine(path) as engine:
        return engine.logits(engine.encode_prompt((ROOT / "tests/golden/long_text.txt").read_text("utf-8")))


def requantise(source: Path, target: Path, kind: Type) -> None:
    """The same file with every quantised matrix but the embedding in another format."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=of)
    for tensor in reader.tensors:
        if tensor.tensor_type in (Type.F32, Type.F16) or tensor.name.startswith("token_embd"):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
