"""AN4: names, addresses, dates and control words, spelled and spoken at CMU in 1991.

Layout, below a folder an4: etc/an4_{train,test}.{fileids,transcription}, and the audio at 16 kHz
in wav/an4_clstk and wav/an4test_clstk. A file id, and the line in the same place of the
transcription (the lines of the test have no <s>):
    an4_clstk/fash/an251-fash-b
    <s> YES </s> (an251-fash-b)
The audio is SPHERE, WAV or headerless (.raw). Headerless audio is converted to FLAC in the cache.
The name of an4 or of the folder that holds it (an4_raw.bigendian, an4_raw.littleendian) gives its
byte order; if it does not, the byte order in which the signal is smoother is used.
One training speaker in ten is for validation, as there is no official dev set.
Licence: free for any use (an4/LICENSE). Size: 64 MB, 948 + 130 utterances.
Address: www.speech.cs.cmu.edu/databases/an4
"""

import os
import re

from util import config as settings, importers, records
from util.corpora import convert, corpus_files, fetch

LISTS = os.path.join('an4', 'etc', 'an4_train.fileids')
ARCHIVES = [fetch.Archive('http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz')]
ENDINGS = ('.wav', '.sph', '.flac', '.raw')  # of several files of an utterance, the first is used
RAW_RATE = 16000  # Hz
DEV_EVERY = 10  # speakers
LINE = re.compile(r'(.*)\(([^()\s]+)\)\s*')
FILLER = re.compile(r'<\S*>|\+\+\S*\+\+')  # sentence ends, silences, noises
VARIANT = re.compile(r'\(\d+\)$')  # number of a pronunciation: A(2)

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus, which is downloaded if it is missing.

    `config.dataset_path` is the folder an4 or the one that holds it.

    Raises:
      DataError: a list is missing, or the corpus cannot be downloaded.
    """
    root = _root(config.dataset_path)
    found = _find_audio(root)
    train, test = (_read_set(root, name, found, config.dataset_path) for name in ('train', 'test'))
    readable = _converted(train + test, root, config)
    train, test = readable[: len(train)], readable[len(train) :]
    dev = sorted({_speaker(utterance) for utterance in train})[DEV_EVERY - 1 :: DEV_EVERY]
    return records.Listing(
        [utterance for utterance in train if _speaker(utterance) not in dev],
        [utterance for utterance in train if _speaker(utterance) in dev],
        test,
    )


def _root(dataset_path):
    """Returns the folder an4, which is downloaded if it is missing."""
    if os.path.isdir(os.path.join(dataset_path, 'etc')):
        return dataset_path
    fetch.fetch_corpus(dataset_path, LISTS, ARCHIVES)
    return os.path.join(dataset_path, 'an4')


def _find_audio(root):
    """Returns {file id in lower case: path} of all audio."""
    folder = os.path.join(root, 'wav')
    paths = corpus_files.find_files(folder, *ENDINGS)
    paths.sort(key=lambda path: -ENDINGS.index(os.path.splitext(path)[1].lower()))
    return {os.path.splitext(os.path.relpath(path, folder))[0].lower(): path for path in paths}


def _read_set(root, set_name, found, dataset_path):
    """Returns the utterances of the lists etc/an4_SET.*, in their order."""
    lists = os.path.join(root, 'etc', 'an4_' + set_name)
    fileids = [line.strip() for line in corpus_files.read_lines(lists + '.fileids')]
    transcripts = match_transcripts(corpus_files.read_lines(lists + '.transcription'), fileids)
    utterances = []
    for fileid, transcript in zip(fileids, transcripts):
        path = found.get(fileid.lower())
        reason = 'no audio file' if path is None else None
        if transcript is None:
            reason = 'no line of its own in etc/an4_%s.transcription' % set_name
        path = path or os.path.join(root, 'wav', fileid)
        utterances.append(
            records.Utterance(path, os.path.relpath(path, dataset_path), transcript or '', reason)
        )
    return utterances


def match_transcripts(lines: list[str], fileids: list[str]) -> list[str | None]:
    """Returns the transcript of each file id, or None for an id that has none.

    The transcript is that of the line in the id's place if that line has the id, otherwise that of
    the only line that has it.
    """
    parsed = [parse_line(line) for line in lines]
    ids = [os.path.basename(fileid) for fileid in fileids]
    bearing: dict[str | None, list[str]] = {}
    for transcript, name in parsed:
        bearing.setdefault(name, []).append(transcript)
    matched = []
    for i, name in enumerate(ids):
        others = bearing.get(name, ())
        in_place = i < len(parsed) and parsed[i][1] == name
        matched.append(parsed[i][0] if in_place else others[0] if len(others) == 1 else None)
    return matched


def parse_line(line: str) -> tuple[str, str | None]:
    """Returns the words and the id of a line of a transcription; the id is None if the line has
    none."""
    match = LINE.fullmatch(line)
    words, name = match.groups() if match else (line, None)
    return ' '.join(VARIANT.sub('', word) for word in FILLER.sub(' ', words).split()), name


def _converted(utterances, root, config):
    """Returns the utterances, with FLAC files instead of headerless ones."""
    raw = [
        utterance.wav_filename
        for utterance in utterances
        if utterance.wav_filename.lower().endswith('.raw') and not utterance.exclusion_reason
    ]
    results = dict(
        zip(
            raw,
            convert.converted(
                raw, config.cache_dir, convert.read_raw, rate=RAW_RATE, byte_order=_byte_order(root)
            ),
        )
    )
    readable = []
    for utterance in utterances:
        result = results.get(utterance.wav_filename)
        if result:
            utterance = utterance._replace(
                wav_filename=result.path or utterance.wav_filename,
                exclusion_reason=result.exclusion_reason,
            )
        readable.append(utterance)
    return readable


def _byte_order(root):
    """Returns 'big' or 'little' if the names of the folders say which, or None."""
    names = ''.join(os.path.abspath(root).lower().split(os.sep)[-2:])
    named = [order for order in ('big', 'little') if order + 'endian' in names]
    return named[0] if len(named) == 1 else None


def _speaker(utterance):
    """Returns the name of the speaker's folder."""
    return os.path.basename(os.path.dirname(utterance.name))
