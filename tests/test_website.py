"""Publishing, which does nothing yet."""

import os

from util import website


def test_nothing_is_published(tmp_path):
    (tmp_path / 'hyper.js').write_text('var hyper = [];\n')
    assert website.maybe_publish(str(tmp_path)) is False
    assert os.listdir(tmp_path) == ['hyper.js']
    assert (tmp_path / 'hyper.js').read_text() == 'var hyper = [];\n'


def test_missing_logs_are_no_error(tmp_path):
    assert website.maybe_publish(str(tmp_path / 'none')) is False
