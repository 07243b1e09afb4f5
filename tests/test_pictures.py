"""Pictures: written as a whole or not at all."""

import pytest

from util import errors
from util.tools import pictures


def figure():
    """A small figure."""
    drawn, axes = pictures.pyplot().subplots(figsize=(1, 1))
    axes.plot([1, 3, 2])
    return drawn


def test_the_ending_is_the_format_and_nothing_else_is_left(tmp_path):
    pictures.save(figure(), str(tmp_path / 'a.b.png'), dpi=20)
    pictures.save(figure(), str(tmp_path / 'a.svg'), dpi=20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.b.png', 'a.svg']
    assert (tmp_path / 'a.b.png').read_bytes().startswith(b'\x89PNG')
    assert b'<svg' in (tmp_path / 'a.svg').read_bytes()
    assert not pictures.pyplot().get_fignums()


def test_a_picture_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / 'a.png'
    path.write_text('before')
    drawn = figure()

    def full(name, **options):
        with open(name, 'w') as file:
            file.write('half')
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(drawn, 'savefig', full)
    with pytest.raises(errors.DeepSpeechError, match='a.png cannot be written: No space left'):
        pictures.save(drawn, str(path), dpi=20)
    assert path.read_text() == 'before' and [path] == list(tmp_path.iterdir())


def test_an_ending_that_is_no_format_is_named(tmp_path):
    with pytest.raises(errors.DeepSpeechError, match='a.nonsense cannot be written: '):
        pictures.save(figure(), str(tmp_path / 'a.nonsense'), dpi=20)
