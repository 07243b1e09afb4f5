"""The list of GPUs."""

from util import gpu
from util.tf1 import tf


def test_names_count_the_gpus(monkeypatch):
    asked = []
    monkeypatch.setattr(
        tf.config,
        'list_physical_devices',
        lambda kind: asked.append(kind) or ['one', 'two', 'three'],
    )
    assert gpu.get_available_gpus() == ['/gpu:0', '/gpu:1', '/gpu:2']
    assert asked == ['GPU']


def test_no_gpus(monkeypatch):
    monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [])
    assert gpu.get_available_gpus() == []
