"""Manifests: any corpus for which there are files that list its utterances.

A manifest is comma-separated, in UTF-8, with the columns wav_filename, wav_filesize (not
needed) and transcript; audio paths are relative to the manifest:
    wav_filename,wav_filesize,transcript
    clips/0001.wav,64044,well then
Or, where its name ends in .json or .jsonl, an object a line; with "offset" an utterance is the
part of the file from there on, "duration" long, in seconds; else it is the whole file:
    {"audio_filepath": "clips/0001.wav", "duration": 2.0, "text": "well then"}
`ds_train_files`, `ds_dev_files` and `ds_test_files` name one or more each, comma-separated.
"""
import csv
import json
import os

from util import config as settings, errors, files, records
from util.feeding import data_sets as data_sets_module

COLUMNS = ('wav_filename', 'transcript')
JSON_LINES = ('.json', '.jsonl')  # endings of names
LONGEST_S = 1e6                   # seconds beyond that, 11 days, are a mistake


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the manifests that the settings name."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the manifests that the settings name.

    Args:
      dataset_path: folder of the manifests that are not found from the working folder.
      config: Config; its train_files, dev_files and test_files.
    Raises:
      DataError: a manifest that is missing or isn't one.
    """
    sets = {}
    for set_name in records.SET_NAMES:
        paths = [path.strip() for path in getattr(config, set_name + '_files').split(',')]
        sets[set_name] = [utterance for path in paths if path
                          for utterance in read_manifest(_find(path, dataset_path, config))]
    return records.Listing(**sets)


def _find(path, dataset_path, config):
    """A manifest in the working folder or in the corpus's; of several corpora the latter first, as
    each has its own."""
    beside = os.path.join(dataset_path, path)
    first, second = (path, beside) if len(config.importers) == 1 else (beside, path)
    return second if not os.path.exists(first) and os.path.exists(second) else first


def read_manifest(path):
    """Utterances of one manifest, in its order.

    Byte order mark, CR LF line ends and blank lines are fine.

    Raises:
      DataError: naming the file and what is wrong with it.
    """
    if path.lower().endswith(JSON_LINES):
        return _read_json_lines(path)
    reader = None
    try:
        with files.open_regular(path, encoding='utf-8-sig', newline='') as file:
            reader = csv.DictReader(file, strict=True)
            columns = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = columns
            rows = [(reader.line_num, row) for row in reader if not _is_blank(row)]
    except OSError as error:
        raise errors.DataError('manifest %s cannot be read: %s' % (path, error.strerror)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise errors.DataError('manifest %s line %d is not CSV in UTF-8: %s' % (
            path, reader.line_num if reader else 1, error)) from None
    if not set(COLUMNS) <= set(columns):
        raise errors.DataError('manifest %s: its first line must name the columns %s, got %s' % (
            path, ' and '.join(COLUMNS), ', '.join(columns) or 'nothing'))
    return [_utterance(row, '%s line %d' % (path, number), path) for number, row in rows]


def _is_blank(row):
    return not any(value.strip() if isinstance(value, str) else value for value in row.values())


def _utterance(row, place, path):
    name = (row['wav_filename'] or '').strip()
    if not (name and _is_path(name)):
        return records.Utterance(path, place, '', 'wav_filename must be the path of a file, got %r'
                                 % name)
    reason = None
    if None in row:  # the name that DictReader gives to fields beyond the header's
        reason = 'more fields than columns in %s; a transcript with a comma needs quotes' % place
    elif '\n' in name + (row['transcript'] or '').strip():
        reason = 'a line break within a field that ends in %s; is a quote not closed?' % place
    return records.Utterance(os.path.join(os.path.dirname(path), name), name,
                             row['transcript'] or '', reason)


def _read_json_lines(path):
    try:
        with files.open_regular(path, encoding='utf-8-sig') as file:
            lines = file.read().split('\n')
    except OSError as error:
        raise errors.DataError('manifest %s cannot be read: %s' % (path, error.strerror)) from None
    except UnicodeDecodeError as error:
        raise errors.DataError('manifest %s is not JSON lines in UTF-8: %s' % (path, error)
                                ) from None
    utterances = [_json_utterance(line, '%s line %d' % (path, number), path)
                  for number, line in enumerate(lines, 1) if line.strip()]
    if utterances and all(utterance.exclusion_reason for utterance in utterances):
        raise errors.DataError('manifest %s holds no usable line; %s: %s' % (
            path, utterances[0].name, utterances[0].exclusion_reason))
    return utterances


def _json_utterance(line, place, path):
    """The utterance of a line; one that can't be used bears its place in the manifest."""
    try:
        name, text, start_s, stop_s = _parse_object(line)
    except ValueError as error:
        return records.Utterance(path, place, '', str(error))
    part = '' if start_s is None else '#%.2f-%s' % (
        start_s, '' if stop_s is None else '%.2f' % stop_s)
    return records.Utterance(os.path.join(os.path.dirname(path), name), name + part, text,
                             start_s=start_s, stop_s=stop_s)


def _parse_object(line):
    """(audio path, transcript, start_s, stop_s) of a line; ValueError says what is wrong."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError('not JSON: %s' % error) from None
    if not isinstance(row, dict):
        raise ValueError('expected a JSON object, got %.40r' % (row,))
    name, text = row.get('audio_filepath'), row.get('text')
    if not (isinstance(name, str) and name.strip() and _is_path(name)):
        raise ValueError('audio_filepath must be the path of a file, got %.40r' % (name,))
    if not isinstance(text, str):
        raise ValueError('text must be the transcript of %s, got %.40r' % (name, text))
    start_s, duration_s = (_seconds(row, field) for field in ('offset', 'duration'))
    both = start_s is not None and duration_s is not None
    return name.strip(), text, start_s, start_s + duration_s if both else None


def _is_path(name):
    """Whether a file can have this name: not with NUL or with halves of surrogate pairs."""
    if name.isascii():
        return '\0' not in name
    return '\0' not in name and not any('\ud800' <= char <= '\udfff' for char in name)


def _seconds(row, field):
    value = row.get(field)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and 0 <= value < LONGEST_S):
        raise ValueError('%s must be a number of seconds, got %.40r' % (field, value))
    return value
