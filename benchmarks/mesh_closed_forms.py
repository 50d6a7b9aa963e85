"""How near the closed forms of the cost model come to the event simulation of a mesh, by its size, as a table.

python benchmarks/mesh_closed_forms.py    # about a minute
"""

from __future__ import annotations

from ultrafast.wafer.cost import mesh
from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.cost.wafer import HOP_CYCLES
from ultrafast.wafer.mesh.timing import Clock
from ultrafast.wafer.shape import Matrix

SIZES = [(4, 4), (5, 5), (6, 6), (7, 7), (8, 8), (10, 10), (13, 13), (16, 16), (20, 20), (23, 23), (32, 32), (40, 40)]
SIZES += [(47, 47), (56, 56), (64, 64), (4, 7), (6, 40), (16, 64), (33, 10), (64, 5)]
PRODUCTS = [(576, 576), (1536, 576), (576, 1536), (64, 64), (4096, 300), (49152, 576)]
WORDS = (1, 2, 5, 18, 72, 300)


def cycles(work: mesh.DecodeWork, macs_per_cycle: float) -> float:
    """By the constants of the cost model."""
    issued = work.macs / macs_per_cycle + work.steps * constant("wafer.step_cycles")
    return issued + (work.hops + work.words) * HOP_CYCLES + work.stages * constant("wafer.stage_cycles")


def worst(rows: int, columns: int) -> tuple[float, float]:
    """Largest relative difference of all-reduces and of products, along both axes."""
    clock = Clock(rows, columns)
    reductions, products = [], []
    for words in WORDS:
        for axis, side in (("rows", columns), ("columns", rows)):
            simulated = clock.allreduce(axis, words).cycles
            reductions.append(cycles(mesh.reduction(side, 2 * words), clock.macs_per_cycle) / simulated - 1)
    for outputs, inputs in PRODUCTS:
        matrix = Matrix("", "dense", outputs, inputs)
        for axis, along, across in (("rows", columns, rows), ("columns", rows, columns)):
            simulated = clock.gemv(outputs, inputs, axis).cycles
            products.append(cycles(mesh.product(matrix, along, across), clock.macs_per_cycle) / simulated - 1)
    return max(reductions, key=abs), max(products, key=abs)


if __name__ == "__main__":
    print("| mesh | all-reduce | matrix times vector |")
    print("|---|---|---|")
    for size in SIZES:
        print(f"| {size[0]} × {size[1]} | " + " | ".join(f"{error:+.1%}" for error in worst(*size)) + " |")
