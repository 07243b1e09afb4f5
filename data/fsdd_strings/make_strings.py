"""Joins recordings of single digits to strings of digits, speaker by speaker.

    python make_strings.py FSDD OUT

FSDD is a folder of the Free Spoken Digit Dataset, whose recordings/ hold DIGIT_SPEAKER_TAKE.wav. A
string has 1 to 5 recordings of one speaker, with 0.05 to 0.2 s of silence between them, at 16 kHz.
For each speaker the script writes the strings into OUT/SPEAKER/ and two manifests:

    OUT/SPEAKER.csv        strings in which each recording occurs once, for validation and test
    OUT/SPEAKER.train.csv  these and others in which each recording occurs several times

So the training set of a fold without two speakers is the .train.csv of the other ones. The same
recordings, seed and versions of NumPy and SciPy give the same files.
"""

import argparse
import csv
import pathlib
import re
import sys

import numpy as np
import scipy.signal
import soundfile

WORDS = 'zero one two three four five six seven eight nine'.split()
RATE = 16000  # Hz
LONGEST = 5  # recordings of a string
SILENCE_S = (0.05, 0.2)  # s, the shortest and the longest silence between two recordings
NAME = re.compile(r'([0-9])_([^_]+)_([0-9]+)\.wav')  # of a recording


def main(arguments):
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument('corpus', metavar='FSDD', type=pathlib.Path, help='folder of the corpus')
    parser.add_argument('out', metavar='OUT', type=pathlib.Path, help='folder for the strings')
    parser.add_argument(
        '--passes',
        type=int,
        default=3,
        help='times that each recording occurs in the strings for training (default: %(default)s)',
    )
    parser.add_argument('--seed', type=int, default=1, help='default: %(default)s')
    options = parser.parse_args(arguments)
    speakers = find_recordings(options.corpus)
    if not speakers:
        print(
            'error: %s has no recordings/DIGIT_SPEAKER_TAKE.wav' % options.corpus, file=sys.stderr
        )
        return 1
    for index, (speaker, recordings) in enumerate(sorted(speakers.items())):
        rng = np.random.default_rng([options.seed, index])
        rows = []
        for number in range(options.passes):
            rows += write_pass(options.out, speaker, recordings, number, rng)
            if number == 0:
                write_manifest(options.out / (speaker + '.csv'), rows)
        write_manifest(options.out / (speaker + '.train.csv'), rows)
        print('%s: %d recordings, %d strings' % (speaker, len(recordings), len(rows)))
    return 0


def find_recordings(corpus):
    """Returns {speaker: list of (digit, path)} of the recordings in a folder of the corpus."""
    found = {}
    for path in sorted((corpus / 'recordings').glob('*.wav')):
        match = NAME.fullmatch(path.name)
        if match:
            found.setdefault(match.group(2), []).append((int(match.group(1)), path))
    return found


def write_pass(out, speaker, recordings, number, rng):
    """Writes strings in which each recording occurs once.

    Args:
      out: folder.
      speaker: name, of the folder below `out`, too.
      recordings: list of (digit, path).
      number: of the pass, from 0, which the files' names begin with.
      rng: numpy.random.Generator.
    Returns:
      List of (path relative to `out`, size in bytes, transcript).
    """
    (out / speaker).mkdir(parents=True, exist_ok=True)
    order, rows = rng.permutation(len(recordings)).tolist(), []
    while order:
        length = int(rng.integers(1, LONGEST + 1))
        chosen = [recordings[i] for i in order[:length]]
        del order[:length]
        path = out / speaker / ('%d_%04d.wav' % (number, len(rows)))
        soundfile.write(path, join([read(path) for _, path in chosen], rng), RATE, 'PCM_16')
        words = ' '.join(WORDS[digit] for digit, _ in chosen)
        rows.append((path.relative_to(out).as_posix(), path.stat().st_size, words))
    return rows


def read(path):
    """Returns a recording at RATE, float64 [n_samples]."""
    samples, rate = soundfile.read(path)
    return scipy.signal.resample_poly(samples, RATE, rate) if rate != RATE else samples


def join(parts, rng):
    """Joins recordings, float64 [n_samples] each, with silence between them."""
    joined = parts[:1]
    for part in parts[1:]:
        joined += [np.zeros(round(RATE * rng.uniform(*SILENCE_S))), part]
    return np.clip(np.concatenate(joined), -1, 1)


def write_manifest(path, rows):
    """Writes a manifest of (path, size, transcript)."""
    with open(path, 'w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(['wav_filename', 'wav_filesize', 'transcript'])
        writer.writerows(rows)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
