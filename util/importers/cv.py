"""Common Voice: sentences read by volunteers, many languages, MP3 of 32 or 48 kHz.

Layout of the releases since 2019: LANGUAGE/clips/*.mp3 and LANGUAGE/train.tsv, dev.tsv, test.tsv;
tab-separated, no quoting, the columns in any order (there are more):
    client_id<tab>path<tab>sentence
    0013a7...<tab>common_voice_en_18.mp3<tab>He said "no", I think.
If validated.tsv is the only one, of every 10 rows the last is for the test, and of every 10
others the last for validation. Layout of the first release: cv-valid-train.csv, cv-valid-dev.csv,
cv-valid-test.csv; comma-separated, with quoting, paths relative to the file:
    filename,text,up_votes
    cv-valid-train/sample-000000.mp3,"learn, and teach",1
Licence: CC0. Size: up to 90 GB a language. Address: commonvoice.mozilla.org. It is never
downloaded here, as there is a form to fill in.
"""

import csv
import os
from typing import NamedTuple

from util import config as settings, errors, importers, records
from util.corpora import corpus_files

TABLES = ['train.tsv', 'dev.tsv', 'test.tsv']
VALIDATED = 'validated.tsv'
OLD_TABLES = ['cv-valid-train.csv', 'cv-valid-dev.csv', 'cv-valid-test.csv']
CLIPS = 'clips'
DEV_EVERY = TEST_EVERY = 10
HOW_TO_GET = 'get a language from commonvoice.mozilla.org (there is a form to accept), unpack it'

read_data_sets = importers.reader(__name__)


class Table(NamedTuple):
    """The content of a table."""

    columns: list[str]  # names of the columns
    rows: list[list[str]]  # the fields of each row; there may be too few or too many
    path: int  # index of the column with the clip's path
    sentence: int  # index of the column with its sentence


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of one language.

    `config.dataset_path` is the language's folder, or one that holds no other language.

    Raises:
      DataError: there is no language or there are several, or a table is missing or cannot be
        used.
    """
    dataset_path = corpus_files.require_folder(config.dataset_path, 'Common Voice', HOW_TO_GET)
    folder = _find_language(dataset_path)
    cut = len(os.path.join(dataset_path, ''))
    found = set(os.listdir(folder))
    for tables in (TABLES, OLD_TABLES):
        if found.intersection(tables):
            return records.Listing(
                *[_list_table(os.path.join(folder, table), cut) for table in tables]
            )
    utterances = _list_table(os.path.join(folder, VALIDATED), cut)
    train, dev, test = corpus_files.split_by_position(utterances, DEV_EVERY, TEST_EVERY)
    return records.Listing(train + _list_unknown_clips(folder, cut), dev, test)


def _find_language(dataset_path):
    """Returns the only folder with tables among `dataset_path` and two levels below it."""
    level = [dataset_path]
    for _ in range(3):
        languages = [
            folder
            for folder in level
            if set(os.listdir(folder)).intersection([*TABLES, *OLD_TABLES, VALIDATED])
        ]
        if len(languages) == 1:
            return languages[0]
        if languages:
            raise errors.DataError(
                '%s holds several languages of Common Voice, ds_dataset_path '
                'must be one of them: %s' % (dataset_path, ', '.join(languages))
            )
        level = [
            entry.path
            for folder in level
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)
            if entry.is_dir() and not entry.name.startswith(corpus_files.HIDDEN)
        ]
    raise errors.DataError(
        '%s holds no train.tsv, validated.tsv or cv-valid-train.csv of Common '
        'Voice; %s' % (dataset_path, HOW_TO_GET)
    )


def _read_table(path):
    """Returns the Table of a TSV file, in which quotes are plain characters, or of a CSV file."""
    lines, needed = corpus_files.read_lines(path), ('path', 'sentence')
    if path.endswith('.tsv'):
        rows = [line.split('\t') for line in lines]
    else:
        rows, needed = _read_csv(path, lines), ('filename', 'text')
    columns = rows[0] if rows else []
    if not set(needed).issubset(columns):
        raise errors.DataError(
            '%s: its first line must name the columns %s and %s, got %s' % (path, *needed, columns)
        )
    return Table(columns, rows[1:], *[columns.index(column) for column in needed])


def _read_csv(path, lines):
    """Returns the rows of a CSV file of these lines."""
    try:
        return list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise errors.DataError('%s is not CSV: %s' % (path, error)) from None


def _list_table(path, cut):
    """Returns the utterances of one table, in its order.

    Args:
      path: path of the table.
      cut: number of characters of an audio file's path before the utterance's name.
    """
    table, utterances, folder = _read_table(path), [], _audio_folder(path)
    for number, row in enumerate(table.rows, 1):
        clip = row[table.path].strip() if len(row) > table.path else ''
        reason = None if clip else 'row %d names no clip' % number
        if len(row) != len(table.columns):
            reason = 'row %d of %s: expected %d columns, got %d' % (
                number,
                path[cut:],
                len(table.columns),
                len(row),
            )
        if corpus_files.leads_out(clip):
            clip, reason = '', 'row %d leads out of the corpus: %.200r' % (number, clip)
        wav_filename = os.path.join(folder, _with_ending(clip)) if clip else path
        utterances.append(
            records.Utterance(
                wav_filename, wav_filename[cut:], None if reason else row[table.sentence], reason
            )
        )
    return utterances


def _audio_folder(path):
    """Returns the folder to which the paths in a table refer."""
    folder, table = os.path.split(path)
    if table.endswith('.tsv'):
        return os.path.join(folder, CLIPS)
    # Kaggle's edition of the first release puts each folder into one of the same name
    name = os.path.splitext(table)[0]
    return os.path.join(folder, name if os.path.isdir(os.path.join(folder, name, name)) else '')


def _with_ending(clip):
    """Returns a clip's file name; the tables of some releases leave its ending out."""
    return clip if os.path.splitext(clip)[1] else clip + '.mp3'


def _list_unknown_clips(folder, cut):
    """Returns the clips that no table of the language names, as utterances that cannot be used."""
    known = set()
    for name in (VALIDATED, 'invalidated.tsv', 'other.tsv'):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            known.update(utterance.wav_filename for utterance in _list_table(path, cut))
    return [
        records.Utterance(path, path[cut:], None, 'no row for it in ' + VALIDATED)
        for path in corpus_files.find_files(os.path.join(folder, CLIPS), '.mp3')
        if path not in known
    ]
