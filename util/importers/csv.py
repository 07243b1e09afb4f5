"""Manifests: any corpus for which there are files that list its utterances.

A manifest is comma-separated, in UTF-8, with the columns wav_filename, wav_filesize (not
needed) and transcript; audio paths are relative to the manifest:
    wav_filename,wav_filesize,transcript
    clips/0001.wav,64044,well then
`ds_train_files`, `ds_dev_files` and `ds_test_files` name one or more each, comma-separated.
"""
import csv
import os

from util import feeding

COLUMNS = ('wav_filename', 'transcript')


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the manifests that the settings name."""
    return feeding.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """feeding.Listing of the manifests that the settings name.

    Args:
      dataset_path: folder of the manifests that are not found from the working folder.
      config: Config; its train_files, dev_files and test_files.
    Raises:
      DataError: a manifest that is missing or isn't one.
    """
    sets = {}
    for set_name in feeding.SET_NAMES:
        paths = [path.strip() for path in getattr(config, set_name + '_files').split(',')]
        sets[set_name] = [utterance for path in paths if path
                          for utterance in read_manifest(_find(path, dataset_path))]
    return feeding.Listing(**sets)


def _find(path, dataset_path):
    beside = os.path.join(dataset_path, path)
    return beside if not os.path.exists(path) and os.path.exists(beside) else path


def read_manifest(path):
    """Utterances of one manifest, in its order.

    Byte order mark, CR LF line ends and blank lines are fine.

    Raises:
      DataError: naming the file and what is wrong with it.
    """
    try:
        with open(path, encoding='utf-8-sig', newline='') as file:
            reader = csv.DictReader(file, strict=True)
            rows = [row for row in reader if any(row.values())]
    except OSError as error:
        raise feeding.DataError('manifest %s cannot be read: %s' % (path, error.strerror)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise feeding.DataError('manifest %s is not CSV in UTF-8: %s' % (path, error)) from None
    missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise feeding.DataError('manifest %s: its first line must name the columns %s, got %s' % (
            path, ' and '.join(COLUMNS), reader.fieldnames))
    return [_utterance(row, path) for row in rows]


def _utterance(row, path):
    name = (row['wav_filename'] or '').strip()
    problem = None
    if None in row:  # the name that DictReader gives to fields beyond the header's
        problem = 'more fields than columns in %s; a transcript with a comma needs quotes' % path
    return feeding.Utterance(os.path.join(os.path.dirname(path), name), name,
                             row['transcript'] or '', problem)
