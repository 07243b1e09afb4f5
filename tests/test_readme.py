"""The READMEs say what is so."""

import os
import pathlib
import re

import pytest

from helpers import PROJECT
from util import config

READMES = [
    path for path in sorted(pathlib.Path(PROJECT).rglob('README.md')) if '.venv' not in path.parts
]
TEXT = pathlib.Path(PROJECT, 'README.md').read_text(encoding='utf-8')
LONGEST = 200  # lines of the README


def anchor(heading):
    """The anchor that a web page of the README has for a heading."""
    return re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-')


def test_settings_table_is_current():
    text = pathlib.Path(PROJECT, 'util', 'README.md').read_text(encoding='utf-8')
    shown = re.search(r'<!-- settings: .*? -->\n(.*?)\n<!-- end of settings -->', text, re.S)
    assert shown.group(1) == config.markdown_table(), 'make it anew with the command above it'


def test_the_short_table_has_the_true_defaults():
    defaults = {row[0]: row[2] for row in config.table_rows()}
    shown = dict(re.findall(r'^\| `(ds_\w+)` \| (\S+) \|', TEXT, re.M))
    assert len(shown) == 15
    derived = {'ds_dataset_path', 'ds_n_hidden'}
    for name in set(shown) - derived:
        assert shown[name] == defaults[name], name


@pytest.mark.parametrize('path', READMES, ids=lambda path: os.path.relpath(path, PROJECT))
def test_what_it_links_to_exists(path):
    for target, _, section in re.findall(
        r'\]\(([\w./-]*)(#([\w-]+))?\)', path.read_text(encoding='utf-8')
    ):
        file = path.parent / target if target else path
        assert file.exists(), target
        if section:
            headings = re.findall(r'^#+ (.*)$', file.read_text(encoding='utf-8'), re.M)
            assert section in map(anchor, headings), section


def test_the_two_commands_stand_in_it_once():
    assert (
        len(re.findall(r'^python3 -m venv .*&& .venv/bin/python DeepSpeech.py$', TEXT, re.M)) == 1
    )
    assert (
        len(re.findall(r'^python3 -m venv .*&& .venv/bin/python -m pytest tests$', TEXT, re.M)) == 1
    )


def test_it_is_short_and_nothing_is_left_to_fill_in():
    assert len(TEXT.splitlines()) <= LONGEST
    assert not re.search('@[A-Z_]+@', TEXT)
