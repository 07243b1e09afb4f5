"""The README says what is so."""
import os
import re

from helpers import PROJECT
from util import config

TEXT = open(os.path.join(PROJECT, 'README.md'), encoding='utf-8').read()


def test_settings_table_is_current():
    shown = re.search(r'<!-- settings: .*? -->\n(.*?)\n<!-- end of settings -->', TEXT, re.S)
    assert shown.group(1) == config.markdown_table(), 'make it anew with the command above it'


def test_files_that_it_links_to_exist():
    for target in re.findall(r'\]\(([\w./-]+)\)', TEXT):
        assert os.path.exists(os.path.join(PROJECT, target)), target


def test_the_two_commands_stand_in_it_once():
    assert len(re.findall(r'^python3 -m venv .*&& .venv/bin/python DeepSpeech.py$', TEXT, re.M)) == 1
    assert len(re.findall(r'^python3 -m venv .*&& .venv/bin/python -m pytest tests$', TEXT,
                          re.M)) == 1


def test_nothing_is_left_to_fill_in():
    assert not re.search('@[A-Z_]+@', TEXT)
