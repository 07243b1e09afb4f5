"""The corpus in data/digits: its manifests, the figures in its README, its script's own check."""

import csv
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys

import pytest

from corpora import read_corpus
from helpers import PROJECT
from util import errors, records
from util.importers import digits
from util.records import SET_NAMES as SETS

DIGITS = os.path.join(PROJECT, 'data', 'digits')
SCRIPT = os.path.join(DIGITS, 'make_digits.py')
WORDS = 'zero one two three four five six seven eight nine'.split()


def read_rows(set_name):
    """Returns the rows of a manifest after its header."""
    with open(os.path.join(DIGITS, set_name + '.csv'), newline='', encoding='utf-8') as file:
        header, *rows = csv.reader(file)
    assert header == ['wav_filename', 'wav_filesize', 'transcript']
    return rows


def readme():
    with open(os.path.join(DIGITS, 'README.md'), encoding='utf-8') as file:
        return file.read()


def readme_table():
    """Returns {set: [utterances, seconds, words, voices, variants]} of the README, as text."""
    rows = re.findall(
        r'^\| (\w+) +\| +(\d+) \| +([\d.]+) \| +(\d+) \| +(\d+) \| +(\d+) \|$',
        readme(),
        re.MULTILINE,
    )
    return {name: figures for name, *figures in rows}


def voice(name):
    """Returns (accent, variant) of a file name: ('en-us', 'm3') of train/en-us+m3_0007.flac."""
    return re.fullmatch(r'\w+/(.+)\+(.+)_\d{4}\.flac', name).groups()


def check(folder):
    """Runs the script's --check on a corpus; returns the CompletedProcess."""
    return subprocess.run(
        [sys.executable, SCRIPT, '--check', '--out', str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope='module')
def own_check():
    """The script's --check of the corpus, as a CompletedProcess."""
    return check(DIGITS)


def test_the_scripts_own_check_finds_no_fault(own_check):
    assert (own_check.returncode, own_check.stderr) == (0, '')
    assert [line.split(':')[0] for line in own_check.stdout.splitlines()] == list(SETS)


def test_the_readme_has_the_counts_that_the_script_finds(own_check):
    found = re.findall(
        r'^(\w+): (\d+) utterances, ([\d.]+) s, (\d+) words, (\d+) voices, '
        r'(\d+) variants',
        own_check.stdout,
        re.MULTILINE,
    )
    assert {name: figures for name, *figures in found} == readme_table()
    assert list(readme_table()) == list(SETS)


@pytest.mark.parametrize('set_name', SETS)
def test_manifests_list_every_file_with_its_size(set_name):
    rows = read_rows(set_name)
    assert len(rows) == int(readme_table()[set_name][0])
    for name, size, _ in rows:
        assert os.path.getsize(os.path.join(DIGITS, name)) == int(size)
    on_disk = {set_name + '/' + name for name in os.listdir(os.path.join(DIGITS, set_name))}
    assert on_disk == {name for name, _, _ in rows}


@pytest.mark.parametrize('set_name', SETS)
def test_transcripts_are_one_to_five_digit_words_each_as_often(set_name):
    transcripts = [row[2].split(' ') for row in read_rows(set_name)]
    lengths = [len(words) for words in transcripts]
    assert {n: lengths.count(n) for n in set(lengths)} == {
        n: len(transcripts) // 5 for n in range(1, 6)
    }
    spoken = [word for words in transcripts for word in words]
    assert {word: spoken.count(word) for word in set(spoken)} == {
        word: len(spoken) // 10 for word in WORDS
    }


def test_long_strings_occur_only_once_in_the_corpus():
    long_ones = [row[2] for name in SETS for row in read_rows(name) if row[2].count(' ') >= 2]
    assert len(set(long_ones)) == len(long_ones) > 100


def test_voices_of_dev_and_test_never_occur_in_another_set():
    voices = {name: {voice(row[0]) for row in read_rows(name)} for name in SETS}
    variants = {name: {variant for _, variant in pairs} for name, pairs in voices.items()}
    for name in SETS:
        others = [variants[other] for other in SETS if other != name]
        assert variants[name] and not variants[name] & set.union(*others)
        assert readme_table()[name][3:] == [str(len(voices[name])), str(len(variants[name]))]


@pytest.mark.parametrize('set_name', SETS)
def test_the_readme_lists_the_variants_of_each_set(set_name):
    listed = re.search(
        r'^- %s: (.*?)(?=\n- |\n\n)' % set_name, readme(), re.MULTILINE | re.DOTALL
    ).group(1)
    assert listed.replace(',', ' ').split() == sorted(
        {voice(row[0])[1] for row in read_rows(set_name)}
    )


def test_the_corpus_takes_at_most_8_mb_as_the_readme_says():
    sizes = [
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(DIGITS)
        for name in names
        if name.endswith(('.flac', '.csv'))
    ]
    in_blocks = sum(-(-size // 4096) * 4096 for size in sizes)
    assert in_blocks <= 8e6
    assert ('%.1f MB, or %.1f MB in disk blocks' % (sum(sizes) / 1e6, in_blocks / 1e6)) in readme()


def test_the_script_plans_the_strings_and_voices_of_the_manifests():
    spec = importlib.util.spec_from_file_location('make_digits', SCRIPT)
    make_digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_digits)
    taken = set()
    for set_name in SETS:
        planned = make_digits.plan_set(set_name, taken)
        assert [(u.name, u.text) for u in planned] == [
            (name, words) for name, _, words in read_rows(set_name)
        ]


def test_the_scripts_check_names_what_was_damaged(tmp_path):
    shutil.copytree(DIGITS, tmp_path / 'digits')
    gone, short, other = (row[0] for row in read_rows('dev')[:3])
    os.remove(tmp_path / 'digits' / gone)
    os.truncate(tmp_path / 'digits' / short, 1000)
    manifest = tmp_path / 'digits/dev.csv'
    manifest.write_text(manifest.read_text().replace(other, other.replace('dev/', 'test/')))
    done = check(tmp_path / 'digits')
    assert done.returncode == 1 and done.stdout == ''
    for name in (gone, short, other):
        assert name in done.stderr


# The importer


def test_the_digits_corpus_is_read_whole_with_its_own_recipe(caplog):
    caplog.set_level(logging.INFO)
    folder = os.path.join(PROJECT, 'data', 'digits')
    sets = read_corpus(digits, folder, config=os.path.join(folder, 'config.json'))
    for data_set, name in zip(sets, records.SET_NAMES):
        with open(os.path.join(folder, name + '.csv'), encoding='utf-8') as file:
            assert len(data_set) == len(file.readlines()) - 1 > 0
    assert caplog.messages == []  # nothing excluded, nothing resampled
    words = {
        word
        for data_set in sets
        for example in data_set.examples
        for word in example.transcript.split()
    }
    assert words == set('zero one two three four five six seven eight nine'.split())
    for data_set, folder in zip(sets, records.SET_NAMES):
        assert all(example.utterance.name.startswith(folder + '/') for example in data_set.examples)


def test_a_digits_folder_without_its_manifests_is_refused_by_name(tmp_path):
    with pytest.raises(errors.DataError) as error:
        read_corpus(digits, tmp_path)
    assert str(tmp_path / 'train.csv') in str(error.value)
