"""The check for CUPTI."""

import logging

import pytest

from util import gpu, shared_lib


@pytest.fixture
def loaded(monkeypatch, caplog):
    """Names of the libraries that are loaded, on a machine with one GPU."""
    caplog.set_level(logging.INFO)
    names = []
    monkeypatch.setattr(gpu, 'get_available_gpus', lambda: ['/gpu:0'])
    monkeypatch.setattr(shared_lib.ctypes, 'CDLL', names.append)
    return names


def test_no_gpu_needs_no_cupti(monkeypatch, loaded, caplog):
    monkeypatch.setattr(gpu, 'get_available_gpus', list)
    assert shared_lib.check_cupti() is None
    assert loaded == []
    assert 'no GPU' in caplog.messages[0]


@pytest.mark.parametrize(
    'found, name', [('libcupti.so.12', 'libcupti.so.12'), (None, 'libcupti.so')]
)
def test_cupti_is_loaded_as_it_is_found(monkeypatch, loaded, caplog, found, name):
    monkeypatch.setattr(shared_lib.ctypes.util, 'find_library', {'cupti': found}.get)
    assert shared_lib.check_cupti() is True
    assert loaded == [name]
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_missing_cupti_is_said(monkeypatch, loaded, caplog):
    def missing(name):
        raise OSError('%s: cannot open shared object file' % name)

    monkeypatch.setattr(shared_lib.ctypes, 'CDLL', missing)
    monkeypatch.setattr(shared_lib.ctypes.util, 'find_library', lambda name: None)
    assert shared_lib.check_cupti() is False
    assert caplog.records[0].levelno == logging.WARNING
    assert 'libcupti.so: cannot open' in caplog.messages[0]
