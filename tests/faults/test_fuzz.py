"""A few seconds of the fuzzer, with a fixed seed."""

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import fuzz  # noqa: E402 - beside this file

pytestmark = pytest.mark.run


@pytest.mark.parametrize('name, executions', [(name, 60) for name in fuzz.TARGETS])
def test_changed_files_give_the_documented_errors_only(tmp_path, name, executions):
    with np.errstate(all='ignore'):
        done, read, findings = fuzz.fuzz(name, 13, executions, kept=str(tmp_path))
    assert done == executions
    assert not findings
    assert read > 0


def test_the_fuzzer_finds_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz.Manifest, 'read', lambda self, content: int('x' + str(len(content))))
    _, read, findings = fuzz.fuzz('manifest', 13, 3, kept=str(tmp_path))
    assert read == 0 and len(findings) == 3 and 'ValueError' in findings[0]
    assert len(list(tmp_path.iterdir())) == 3
