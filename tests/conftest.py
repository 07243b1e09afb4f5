"""Fixtures, the guard of the marker `run`, and a line at the end about absent speech data;
helpers.py and runs.py hold the functions that tests share."""

import os
import pathlib
import re
import shutil
import sys

import hypothesis
import pytest

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PROJECT)
pytest.register_assert_rewrite(
    'corpora', 'feeding_helpers', 'fetching_helpers', 'helpers', 'runs', 'torch_models'
)

import feeding_helpers  # noqa: E402
import helpers  # noqa: E402
import runs  # noqa: E402
from util import errors  # noqa: E402
from util.corpora import fetch  # noqa: E402
from util.feeding import data_sets  # noqa: E402

DATA_VARIABLE = 'DEEPSPEECH_TEST_DATA'
DATA = pathlib.Path(os.environ.get(DATA_VARIABLE) or os.path.join(PROJECT, '..', 'shared', 'data'))
SERVERS = {'running', 'strict', 'joining', 'other'}  # fixtures of those that start a server
ABSENT = 'no shared speech data of %s'  # the reason of a test that is skipped for want of a corpus

# `pytest --hypothesis-profile thorough` draws more inputs of the tests of properties
for profile, n_examples in (('thorough', 1000), ('quick', 20)):
    hypothesis.settings.register_profile(
        profile, max_examples=n_examples, derandomize=True, deadline=None, database=None
    )
hypothesis.settings.load_profile('quick')


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Gives the marker `run` to each test that uses a model server in a process of its own."""
    for item in items:
        if SERVERS.intersection(item.fixturenames):
            item.add_marker('run')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Lets only tests with the marker `run`, and the fixtures they use, start DeepSpeech.py."""
    with runs.allowed(item.get_closest_marker('run') is not None):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    """Names, in one line, the corpora for want of which tests were skipped."""
    pattern = ABSENT % '([^/ ]+)'
    found = [
        re.search(pattern, str(report.longrepr))
        for report in terminalreporter.stats.get('skipped', ())
    ]
    absent = {match[1] for match in found if match}
    if absent:
        terminalreporter.write_line(
            'Tests were skipped because shared speech data are absent (%s names their folder): %s'
            % (DATA_VARIABLE, ', '.join(sorted(absent)))
        )


@pytest.fixture(scope='session')
def shared_data():
    """A function that returns the path of shared speech data, or skips the test without them.

    shared_data('an4', 'wav') is an4/wav below the folder that DEEPSPEECH_TEST_DATA names, as a
    pathlib.Path; without the variable it is below ../shared/data beside the project. The first
    part is the corpus.
    """

    def find(*parts):
        path = DATA.joinpath(*parts)
        if not path.exists():
            pytest.skip((ABSENT + ' (see %s)') % ('/'.join(parts), DATA_VARIABLE))
        return path

    return find


@pytest.fixture(scope='session')
def finished(tmp_path_factory):
    """(folder, CompletedProcess): a corpus and a run of two epochs on it, started as from a shell,
    with an export; not to be changed."""
    folder = helpers.make_corpus(tmp_path_factory.mktemp('finished'))
    return folder, runs.run_deepspeech(folder, export_dir='export', dropout_rate=0, fresh=True)


@pytest.fixture
def resumable(finished, tmp_path):
    """A copy of the folder of `finished`, to go on from."""
    folder = tmp_path / 'copy'
    shutil.copytree(finished[0], folder)
    return folder


@pytest.fixture
def corpus(tmp_path):
    """`make_corpus` in a folder of the test's own."""
    return helpers.make_corpus(tmp_path)


@pytest.fixture
def no_audio(monkeypatch):
    """Lets DataSet.read make up what it reads, as `feeding_helpers.item` does."""
    monkeypatch.setattr(data_sets.DataSet, 'read', feeding_helpers.item)


@pytest.fixture
def fetched(monkeypatch):
    """What the importer asks fetch.fetch_corpus for; a marker that is missing is an error."""
    asked = []

    def fetch_corpus(folder, marker, archives):
        asked.append((str(folder), marker, archives))
        if not os.path.exists(os.path.join(folder, marker)):
            raise errors.DataError('no network')

    monkeypatch.setattr(fetch, 'fetch_corpus', fetch_corpus)
    return asked
