"""Reads manifests, the lists of utterances that util/importers/csv.py describes."""

import csv
import json
import os

from util import errors, files, records

COLUMNS = ('wav_filename', 'transcript')
JSON_LINES = ('.json', '.jsonl')  # endings of names
ENDINGS = ('.csv', *JSON_LINES)  # of the names of all manifests
LONGEST_LINE = 1 << 20  # characters; no longer line is kept in memory
SHOWN = 200  # characters of a field that a message shows
LONGEST_S = 1e6  # s, 11 days; a longer duration or offset is a mistake


def read_manifest(path: str) -> list[records.Utterance]:
    """Returns the utterances of one manifest, in its order.

    A byte order mark, CR LF line ends and blank lines are allowed.

    Raises:
      DataError: the manifest cannot be used; the message names the file and what is wrong with it.
    """
    if path.lower().endswith(JSON_LINES):
        return _read_json_lines(path)
    reader = None
    try:
        with files.open_regular(path, encoding='utf-8-sig', newline='') as file:
            reader = csv.DictReader(_lines(file), strict=True)
            columns = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = columns
            rows = list(_rows(reader))
    except OSError as error:
        raise errors.DataError('manifest %s cannot be read: %s' % (path, error.strerror)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise errors.DataError(
            'manifest %s line %d is not CSV in UTF-8: %s'
            % (path, reader.reader.line_num if reader else 1, error)
        ) from None
    if not set(COLUMNS) <= set(columns):
        raise errors.DataError(
            'manifest %s: its first line must name the columns %s, got %s'
            % (path, ' and '.join(COLUMNS), ', '.join(columns)[:SHOWN] or 'nothing')
        )
    return [_utterance(row, '%s line %d' % (path, number), path) for number, row in rows]


def _lines(file):
    """Yields the lines of a text file; of a line that is longer than LONGEST_LINE its beginning,
    with a line end."""
    while line := file.readline(LONGEST_LINE):
        rest = line
        while len(rest) == LONGEST_LINE and not rest.endswith('\n'):
            rest = file.readline(LONGEST_LINE)
        yield line if rest is line else line + '\n'


def _rows(reader):
    """Yields the number of its line and the row, for each row that is not blank; None in place of a
    row with a field that is longer than csv.field_size_limit.

    Raises:
      csv.Error: as the reader; also if such a field goes over several lines, as then a quote is not
        closed, and the rows within it would be lost.
    """
    while True:
        before = reader.reader.line_num
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if 'field limit' not in str(error) or reader.reader.line_num > before + 1:
                raise
            row = None
        if row is None or not _is_blank(row):
            yield reader.reader.line_num, row


def _is_blank(row):
    """Tells whether no field of a row holds more than white space."""
    return not any(value.strip() if isinstance(value, str) else value for value in row.values())


def _utterance(row, place, path):
    """Returns the utterance of a row; one without a file is named by its place in the manifest."""
    if row is None:
        reason = 'a field of more than %d characters' % csv.field_size_limit()
        return records.Utterance(path, place, '', reason)
    name = (row['wav_filename'] or '').strip()
    if not (name and _is_path(name)):
        return records.Utterance(
            path, place, '', 'wav_filename must be the path of a file, got %r' % name[:SHOWN]
        )
    reason = None
    if None in row:  # DictReader gives this name to fields beyond those of the header
        reason = 'more fields than columns in %s; a transcript with a comma needs quotes' % place
    elif '\n' in name + (row['transcript'] or '').strip():
        reason = 'a line break within a field that ends in %s; is a quote not closed?' % place
    return records.Utterance(
        os.path.join(os.path.dirname(path), name), name, row['transcript'] or '', reason
    )


def _read_json_lines(path):
    """Returns the utterances of a manifest with an object on each line."""
    try:
        with files.open_regular(path, encoding='utf-8-sig') as file:
            lines = [
                (number, line if len(line) <= LONGEST_LINE else None)
                for number, line in enumerate(_lines(file), 1)
                if line.strip()
            ]
    except OSError as error:
        raise errors.DataError('manifest %s cannot be read: %s' % (path, error.strerror)) from None
    except UnicodeDecodeError as error:
        raise errors.DataError(
            'manifest %s is not JSON lines in UTF-8: %s' % (path, error)
        ) from None
    utterances = [
        _json_utterance(line, '%s line %d' % (path, number), path) for number, line in lines
    ]
    if utterances and all(utterance.exclusion_reason for utterance in utterances):
        raise errors.DataError(
            'manifest %s holds no usable line; %s: %s'
            % (path, utterances[0].name, utterances[0].exclusion_reason)
        )
    return utterances


def _json_utterance(line, place, path):
    """Returns the utterance of a line; one that cannot be used is named by its place."""
    try:
        name, text, start_s, stop_s = _parse_object(line)
    except ValueError as error:
        return records.Utterance(path, place, '', str(error))
    part = (
        '' if start_s is None else '#%.2f-%s' % (start_s, '' if stop_s is None else '%.2f' % stop_s)
    )
    return records.Utterance(
        os.path.join(os.path.dirname(path), name),
        errors.printable(name + part),
        text,
        start_s=start_s,
        stop_s=stop_s,
    )


def _parse_object(line):
    """Returns the audio file's path, the transcript, start_s and stop_s of a line.

    Raises:
      ValueError: the line is malformed; the message says how.
    """
    if line is None:
        raise ValueError('a line of more than %d characters' % LONGEST_LINE)
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
        raise ValueError('text must be the transcript of %s, got %.40r' % (name[:SHOWN], text))
    start_s, duration_s = (_seconds(row, field) for field in ('offset', 'duration'))
    both = start_s is not None and duration_s is not None
    return name.strip(), text, start_s, start_s + duration_s if both else None


def _is_path(name):
    """Tells whether a file can have this name: it has no NUL and no half of a surrogate pair."""
    if name.isascii():
        return '\0' not in name
    return '\0' not in name and not any('\ud800' <= char <= '\udfff' for char in name)


def _seconds(row, field):
    """Returns the number of seconds in a field, or None if it is missing.

    Raises:
      ValueError: the field is not a number from 0 to LONGEST_S.
    """
    value = row.get(field)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and 0 <= value < LONGEST_S):
        raise ValueError('%s must be a number of seconds, got %.40r' % (field, value))
    return value
