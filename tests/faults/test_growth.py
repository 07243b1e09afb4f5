"""A run of many epochs does not grow; `growth.py` has the long version."""

import pytest

import growth

pytestmark = pytest.mark.run

EPOCHS = 30
GRAPH_BYTES = 2e6  # limit of the graph that the training's event file begins with
UPDATE_BYTES, EPOCH_BYTES = 70, 700  # limits of what event files take, see util/README.md


def test_a_long_run_keeps_its_size(tmp_path):
    sizes = growth.measure(tmp_path, EPOCHS)
    assert [size.epoch for size in sizes] == list(range(1, EPOCHS + 1))
    early, late = sizes[9:15], sizes[-6:]
    for name, share in (('threads', 1.0), ('files', 1.0), ('maps', 1.01), ('memory', 1.03)):
        before, after = ([getattr(size, name) for size in part] for part in (early, late))
        assert min(after) <= share * max(before), name
    grown = sizes[-1].events - sizes[0].events
    assert grown < (EPOCHS - 1) * (3 * UPDATE_BYTES + EPOCH_BYTES)
    assert sizes[0].events < GRAPH_BYTES
