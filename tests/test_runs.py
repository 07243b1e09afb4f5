"""The guard of whole runs."""

import pytest

from runs import run_deepspeech


def test_a_test_without_the_marker_starts_no_run(tmp_path):
    with pytest.raises(RuntimeError, match='needs the marker @pytest.mark.run'):
        run_deepspeech(tmp_path)
