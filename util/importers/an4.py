"""AN4: names, addresses, dates and control words, spelled and spoken at CMU in 1991.

Layout: etc/an4_{train,test}.{fileids,transcription} and wav/an4_clstk, wav/an4test_clstk with
the audio at 16 kHz, below a folder an4. A file id, and the line that has its place in the
transcription (in the test's without <s>):
    an4_clstk/fash/an251-fash-b
    <s> YES </s> (an251-fash-b)
The audio is SPHERE, WAV or headerless (.raw); the last is converted to FLAC in the cache. Its
byte order is told by the names of an4 or of the folder that holds it (an4_raw.bigendian,
an4_raw.littleendian); where these don't tell, it is the one in which the signal is smoother.
One training speaker in ten is for validation, as there is no official set for it.
Licence: free for any use (an4/LICENSE). Size: 64 MB, 948 + 130 utterances.
Address: www.speech.cs.cmu.edu/databases/an4
"""
import os
import re

from util import records
from util.corpora import convert, corpus_files, download
from util.feeding import data_sets as data_sets_module

LISTS = os.path.join('an4', 'etc', 'an4_train.fileids')
ARCHIVES = [download.Archive('http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz',
                             None, None)]
ENDINGS = ('.wav', '.sph', '.flac', '.raw')  # the first is taken where there are several
RAW_RATE = 16000                             # Hz
DEV_EVERY = 10                               # speakers
LINE = re.compile(r'(.*)\(([^()\s]+)\)\s*')
FILLER = re.compile(r'<\S*>|\+\+\S*\+\+')    # sentence ends, silences, noises
VARIANT = re.compile(r'\(\d+\)$')            # of a pronunciation: A(2)


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the corpus; `dataset_path` is an4 or the folder that holds it.

    Raises:
      DataError: a list that is missing, or the corpus can't be fetched.
    """
    root = _root(dataset_path)
    found = _find_audio(root)
    train, test = (_read_set(root, name, found, dataset_path) for name in ('train', 'test'))
    readable = _converted(train + test, root, config)
    train, test = readable[:len(train)], readable[len(train):]
    dev = sorted({_speaker(utterance) for utterance in train})[DEV_EVERY - 1::DEV_EVERY]
    return records.Listing([utterance for utterance in train if _speaker(utterance) not in dev],
                           [utterance for utterance in train if _speaker(utterance) in dev], test)


def _root(dataset_path):
    """The folder an4, fetched where it isn't there."""
    if os.path.isdir(os.path.join(dataset_path, 'etc')):
        return dataset_path
    download.fetch_corpus(dataset_path, LISTS, ARCHIVES)
    return os.path.join(dataset_path, 'an4')


def _find_audio(root):
    """{file id in lower case: path} of all audio."""
    folder = os.path.join(root, 'wav')
    paths = corpus_files.find_files(folder, *ENDINGS)
    paths.sort(key=lambda path: -ENDINGS.index(os.path.splitext(path)[1].lower()))
    return {os.path.splitext(os.path.relpath(path, folder))[0].lower(): path for path in paths}


def _read_set(root, set_name, found, dataset_path):
    """Utterances of the lists etc/an4_SET.*, in their order."""
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
        utterances.append(records.Utterance(path, os.path.relpath(path, dataset_path),
                                            transcript or '', reason))
    return utterances


def match_transcripts(lines, fileids):
    """The transcript of each file id: of the line in its place if that bears its id, else of the
    one line that does; None where there is none."""
    parsed = [parse_line(line) for line in lines]
    ids = [os.path.basename(fileid) for fileid in fileids]
    bearing = {}
    for transcript, name in parsed:
        bearing.setdefault(name, []).append(transcript)
    matched = []
    for i, name in enumerate(ids):
        others = bearing.get(name, ())
        in_place = i < len(parsed) and parsed[i][1] == name
        matched.append(parsed[i][0] if in_place else others[0] if len(others) == 1 else None)
    return matched


def parse_line(line):
    """(words, id) of a line of a transcription; the id is None where there is none."""
    match = LINE.fullmatch(line)
    words, name = match.groups() if match else (line, None)
    return ' '.join(VARIANT.sub('', word) for word in FILLER.sub(' ', words).split()), name


def _converted(utterances, root, config):
    """The utterances, those that lie in headerless files with FLAC files in their place."""
    raw = [utterance.wav_filename for utterance in utterances
           if utterance.wav_filename.lower().endswith('.raw') and not utterance.exclusion_reason]
    results = dict(zip(raw, convert.converted(raw, config.cache_dir, convert.read_raw,
                                              rate=RAW_RATE, byte_order=_byte_order(root))))
    return [utterance if utterance.wav_filename not in results else utterance._replace(
        wav_filename=results[utterance.wav_filename].path or utterance.wav_filename,
        exclusion_reason=results[utterance.wav_filename].exclusion_reason) for utterance in utterances]


def _byte_order(root):
    names = ''.join(os.path.abspath(root).lower().split(os.sep)[-2:])
    told = [order for order in ('big', 'little') if order + 'endian' in names]
    return told[0] if len(told) == 1 else None


def _speaker(utterance):
    return os.path.basename(os.path.dirname(utterance.name))
