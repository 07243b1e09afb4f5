"""language.models: what kind of file a language model is, its words, and damaged ones."""

import gzip
import struct

import pytest

from util import errors
from util.language import models

ARPA = '\\data\\\nngram 1=4\n\n\\1-grams:\n-1\t<unk>\n-1\t<s>\n-1\t</s>\n-1\tone\n\n\\end\\\n'


def binary(words, n_words=None, has_words=True):
    """The content of a file in the form of KenLM's binaries, without a model."""
    header = models.MAGIC_OF_BINARY.ljust(models.BINARY_HEADER_AT, b'\0')
    header += struct.pack(models.BINARY_HEADER, has_words, n_words or len(words))
    return header + b'\x07' * 999 + b''.join(word.encode() + b'\0' for word in words)


def opened(path):
    """(is_arpa, words) of a file."""
    with models.unpacked(str(path), 'ds_lm') as (plain, is_arpa):
        return is_arpa, models.words_of(plain, is_arpa, str(path))


@pytest.mark.parametrize('begin', ('', '\n', '# comment\n\n'))
def test_an_arpa_file(tmp_path, begin):
    path = tmp_path / 'any name'
    path.write_text(begin + ARPA)
    assert opened(path) == (True, ['one'])
    path.write_bytes(gzip.compress((begin + ARPA).encode()))
    assert opened(path) == (True, ['one'])


def test_a_binary(tmp_path):
    path, words = tmp_path / 'model', ['<unk>', '<s>', 'one', '</s>', 'zwölf']
    path.write_bytes(binary(words))
    assert opened(path) == (False, ['one', 'zwölf'])
    for content in (binary(words, has_words=False), binary(words, 6), binary(words)[:-1]):
        path.write_bytes(content)
        assert opened(path) == (False, None)


@pytest.mark.parametrize(
    ('content', 'words'),
    [
        (b'', 'is neither an ARPA file'),
        (b'one two\n', 'is neither an ARPA file'),
        (models.MAGIC_OF_BINARY, 'is neither an ARPA file'),
        (gzip.compress(b'one two\n', mtime=0), 'is neither an ARPA file'),
        (gzip.compress(ARPA.encode(), mtime=0)[:-20], 'cannot read .*: Compressed file ended'),
        (b'\x1f\x8bnothing', 'cannot read .*: Compressed file ended'),
    ],
)
def test_other_files(tmp_path, content, words):
    path = tmp_path / 'model'
    path.write_bytes(content)
    with pytest.raises(errors.LanguageError, match=words) as caught:
        opened(path)
    assert str(caught.value).startswith('ds_lm: ') and '\n' not in str(caught.value)


def test_a_damaged_model_is_named_as_the_user_knows_it(tmp_path):
    pytest.importorskip('flashlight.lib.text', reason='flashlight-text is not installed')
    path = tmp_path / 'model.gz'
    path.write_bytes(gzip.compress(ARPA.replace('\\end\\', '').encode()))
    with (
        models.unpacked(str(path), 'ds_lm') as (plain, _),
        pytest.raises(
            errors.LanguageError, match='^ds_lm: KenLM cannot read .*model.gz: '
        ) as found,
    ):
        models.open_model(plain, ['one'], str(path), 'ds_lm')
    assert '\n' not in str(found.value) and plain not in str(found.value)
