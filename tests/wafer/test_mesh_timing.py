"""The event simulation of a mesh, and how near the closed forms of the cost model come to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast.errors import ConfigError
from ultrafast.wafer.cost import mesh
from ultrafast.wafer.cost.constants import constant
from ultrafast.wafer.mesh.collectives import ALGORITHMS, order_of_adds
from ultrafast.wafer.mesh.events import Fabric
from ultrafast.wafer.mesh.timing import Axis, Clock
from ultrafast.wafer.mesh.trees import ring, two_level
from ultrafast.wafer.shape import Matrix

MESHES = [(4, 4), (5, 5), (7, 7), (8, 8), (13, 13), (16, 16), (23, 23), (32, 32), (40, 40), (56, 56), (64, 64)]
RECTANGLES = [(4, 7), (6, 40), (16, 64), (33, 10), (64, 5)]
STAGE = constant("wafer.stage_cycles")


def cycles(work: mesh.DecodeWork) -> float:
    issue = work.steps * constant("wafer.step_cycles")
    return work.macs / 4 + issue + work.hops + work.words + work.stages * STAGE


@pytest.mark.parametrize(("rows", "columns"), MESHES + RECTANGLES)
@pytest.mark.parametrize(("outputs", "inputs"), [(576, 576), (1536, 192), (64, 64)])
def test_a_product_takes_what_the_closed_form_says(rows: int, columns: int, outputs: int, inputs: int) -> None:
    clock = Clock(rows, columns)
    matrix = Matrix("", "dense", outputs, inputs)
    for axis, along, across in (("rows", columns, rows), ("columns", rows, columns)):
        simulated = clock.gemv(outputs, inputs, axis).cycles
        assert cycles(mesh.product(matrix, along, across)) == pytest.approx(simulated, rel=0.05)


sides = st.integers(4, 64)


@given(rows=sides, columns=sides, outputs=st.integers(64, 5_000), inputs=st.integers(64, 5_000))
@settings(deadline=None, max_examples=15)
def test_so_does_any_other_product(rows: int, columns: int, outputs: int, inputs: int) -> None:
    simulated = Clock(rows, columns).gemv(outputs, inputs, "rows").cycles
    assert cycles(mesh.product(Matrix("", "dense", outputs, inputs), columns, rows)) == pytest.approx(
        simulated, rel=0.05
    )


@pytest.mark.parametrize("side", range(2, 65))
def test_an_all_reduce_takes_what_the_closed_form_says(side: int) -> None:
    for words in (1, 2, 5, 18, 72, 300):
        simulated = Clock(1, side).allreduce("rows", words).cycles
        assert cycles(mesh.reduction(side, 2 * words)) == pytest.approx(simulated, rel=0.05)


@pytest.mark.parametrize("side", [2, 9, 30, 64])
def test_chain_and_ring_take_what_was_published(side: int) -> None:
    """2 N hops and N stages of a chain, N times two hops and a stage of a ring (WaferLLM's table of GEMVs)."""
    clock = Clock(side, 1)
    assert clock.allreduce("columns", 1, "chain").cycles == pytest.approx((side - 1) * (2 + STAGE))
    assert clock.allreduce("columns", 1, "ring").cycles == pytest.approx((side - 1) * (2 + STAGE), abs=2)
    assert side < 4 or clock.allreduce("columns", 1).cycles < clock.allreduce("columns", 1, "chain").cycles


@given(rows=st.integers(1, 12), columns=st.integers(1, 12), words=st.integers(1, 40))
@settings(deadline=None, max_examples=30)
def test_rows_and_columns_are_alike_and_more_words_never_take_less(rows: int, columns: int, words: int) -> None:
    for algorithm in ALGORITHMS:
        one = Clock(rows, columns).allreduce("rows", words, algorithm)
        other = Clock(columns, rows).allreduce("columns", words, algorithm)
        assert (one.done == other.done.T).all()
        assert one.cycles <= Clock(rows, columns).allreduce("rows", words + 1, algorithm).cycles
        assert one.done.min() >= words - 1


@given(side=st.integers(1, 200))
@settings(deadline=None)
def test_a_tree_adds_every_partial_sum_once(side: int) -> None:
    tree, sums = two_level(side), [{place} for place in range(side)]
    for parent, child in order_of_adds(side):
        assert tree[child] == parent
        assert not sums[parent] & sums[child]
        sums[parent] |= sums[child]
    (root,) = (place for place in range(side) if tree[place] == place)
    assert sums[root] == set(range(side))


@given(side=st.integers(1, 100))
def test_neighbours_on_a_ring_are_near(side: int) -> None:
    order = ring(side)
    assert sorted(order) == list(range(side))
    assert all(abs(a - b) <= 2 for a, b in zip(order, order[1:] + order[:1], strict=True))


def test_who_comes_first_has_the_link_and_the_pe() -> None:
    fabric, seen = Fabric(stage_cycles=10.0), []
    fabric.send([0, 1, 2], 0.0, 5, lambda pe, time: seen.append(("first", pe, time)))
    fabric.send([0, 1], 0.0, 1, lambda pe, time: seen.append(("second", pe, time)))
    fabric.handle(7, 0.0, 3, lambda time: seen.append(("handled", 7, time)))
    fabric.handle(7, 1.0, 1, lambda time: seen.append(("waited", 7, time)))
    assert fabric.run() == 22.0
    assert seen == [("first", 1, 1.0), ("first", 2, 2.0), ("second", 1, 6.0), ("handled", 7, 10.0), ("waited", 7, 22.0)]


@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_the_same_mesh_always_takes_the_same_time(axis: Axis) -> None:
    one, other = (Clock(9, 14).gemv(300, 200, axis) for _ in range(2))
    assert (one.done == other.done).all()
    assert one.events == other.events


@pytest.mark.parametrize(("rows", "columns", "problem"), [(0, 4, "has no PE"), (-1, 4, "no PE"), (900, 900, "810,000")])
def test_impossible_meshes(rows: int, columns: int, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Clock(rows, columns)


def test_an_unknown_algorithm() -> None:
    with pytest.raises(ConfigError, match="no all-reduce 'tee'; there are tree, chain, ring"):
        Clock(2, 2).allreduce("rows", 1, "tee")
