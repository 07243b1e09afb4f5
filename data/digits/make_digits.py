#!/usr/bin/env python3
"""Makes or checks a small corpus of spoken digit strings, with espeak-ng.

Every utterance is a string of 1 to 5 English digit words ("zero" .. "nine"),
spoken by espeak-ng and stored as 16 kHz mono 16-bit FLAC. A voice is an
accent plus a variant, for instance "en-us+m3", and is part of the file name
("train/en-us+m3_0007.flac"). The variants of train, dev and test are
disjoint. Each set gets a CSV file with the columns wav_filename (relative to
the CSV file), wav_filesize (bytes) and transcript.

Everything is drawn from SEED, so the same versions of espeak-ng, numpy, scipy
and libsndfile give the same bytes.

    python make_digits.py               make the corpus in the script's folder
    python make_digits.py --out DIR     make it in DIR
    python make_digits.py --check       verify an existing corpus
"""

import argparse
import csv
import io
import math
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

SEED = 20240229

DIGITS = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')
LENGTHS = (1, 2, 3, 4, 5)  # words in a string
UNIQUE_FROM = 3  # strings of so many words or more occur only once

# "en" is the British voice: espeak-ng 1.51 ignores the variant of "en-gb".
ACCENTS = (
    'en',
    'en-029',
    'en-gb-scotland',
    'en-gb-x-gbclan',
    'en-gb-x-gbcwmd',
    'en-gb-x-rp',
    'en-us',
)
VARIANTS = {
    'train': (
        'Alex',
        'Andrea',
        'Annie',
        'Denis',
        'Gene',
        'Mario',
        'Michael',
        'Mike',
        'Nguyen',
        'Storm',
        'aunty',
        'belinda',
        'david',
        'edward',
        'f1',
        'f2',
        'grandma',
        'gustave',
        'iven4',
        'john',
        'klatt',
        'klatt3',
        'linda',
        'm1',
        'm3',
        'm5',
        'm7',
        'max',
        'miguel',
        'pablo',
        'pedro',
        'quincy',
        'rob',
        'steph',
        'victor',
    ),
    'dev': ('f4', 'm2', 'm6'),
    'test': ('f3', 'f5', 'm4', 'm8'),
}
PER_LENGTH = {'train': 126, 'dev': 12, 'test': 16}  # strings of each length

SPEED_WPM = (110, 180)  # words a minute (espeak-ng -s)
PITCH = (20, 80)  # espeak-ng -p, from 0 to 99
GAP_10MS = (2, 8)  # pause between words, 10 ms units (espeak-ng -g)
AMPLITUDE = 40  # espeak-ng -a; low enough not to clip
PEAK = (0.3, 0.9)  # largest sample, as a part of full scale
SNR_DB = (18.0, 30.0)  # speech power over noise power

RATE_HZ = 16000
ESPEAK_RATE_HZ = 22050
UP, DOWN = 320, 441  # RATE_HZ / ESPEAK_RATE_HZ in lowest terms
MARGIN = RATE_HZ // 10  # samples (100 ms) kept before and after the speech
SPEECH_FLOOR = 0.01  # part of the peak above which a sample is speech
FULL_SCALE = 32767
STEP_OVER_NOISE = 4.0  # largest rounding step, in noise deviations

HEADER = ('wav_filename', 'wav_filesize', 'transcript')
NAME = re.compile(r'(\w+)/([\w-]+)\+(\w+)_\d{4}\.flac')  # set, accent, variant
MAX_BYTES = 8_000_000  # all files, each rounded up to whole disk blocks
BLOCK_BYTES = 4096

Words = tuple[str, ...]  # the digit words of an utterance
Row = tuple[str, int, str]  # of a CSV file: name, bytes, transcript


class Utterance(NamedTuple):
    """An utterance of the plan."""

    name: str  # of the FLAC file, relative to the folder of the corpus
    voice: str  # accent and variant of espeak-ng
    text: str  # the digit words with spaces between
    speed: int  # words a minute
    pitch: int  # as espeak-ng counts it, from 0 to 99
    gap: int  # pause between words in units of 10 ms
    peak: float  # largest sample, as a part of full scale
    snr: float  # dB, speech power over noise power
    noise_seed: int


class CorpusError(Exception):
    """A problem that is told to the user in one line."""


# ---------------------------------------------------------------- the plan


def cut(deck: Sequence[str], length: int) -> list[Words]:
    """Cuts a list of words into tuples of `length` words."""
    return [tuple(deck[i : i + length]) for i in range(0, len(deck), length)]


def clashes(strings: Iterable[Words], taken: Collection[Words]) -> list[int]:
    """Returns the indices of the strings that are in `taken` or came before."""
    seen = set(taken)
    bad = []
    for index, words in enumerate(strings):
        if words in seen:
            bad.append(index)
        seen.add(words)
    return bad


def deal(rng: random.Random, length: int, count: int, taken: set[Words]) -> list[Words]:
    """Deals `count` strings of `length` words, each digit equally often.

    The strings of UNIQUE_FROM words or more are unique and added to `taken`.
    """
    total = length * count
    start = count * sum(range(length))  # go on where the shorter ones ended
    deck = [DIGITS[(start + i) % len(DIGITS)] for i in range(total)]
    rng.shuffle(deck)
    if length < UNIQUE_FROM:
        return cut(deck, length)
    while bad := clashes(cut(deck, length), taken):
        for index in bad:
            here = index * length + rng.randrange(length)
            there = rng.randrange(total)
            deck[here], deck[there] = deck[there], deck[here]
    strings = cut(deck, length)
    taken.update(strings)
    return strings


def voices_of(rng: random.Random, set_name: str, count: int) -> list[str]:
    """Returns `count` voice names, going round all accents and variants."""
    voices = [f'{accent}+{variant}' for accent in ACCENTS for variant in VARIANTS[set_name]]
    rng.shuffle(voices)
    return [voices[i % len(voices)] for i in range(count)]


def plan_set(set_name: str, taken: set[Words]) -> list[Utterance]:
    """Draws the utterances of one set; `taken` holds the strings so far."""
    rng = random.Random(f'{SEED} {set_name}')
    count = PER_LENGTH[set_name]
    strings = [words for length in LENGTHS for words in deal(rng, length, count, taken)]
    rng.shuffle(strings)
    voices = voices_of(rng, set_name, len(strings))
    return [
        draw(rng, set_name, index, voice, words)
        for index, (voice, words) in enumerate(zip(voices, strings))
    ]


def draw(rng: random.Random, set_name: str, index: int, voice: str, words: Words) -> Utterance:
    """Draws the manner of speaking and recording of one utterance."""
    return Utterance(
        name=f'{set_name}/{voice}_{index:04d}.flac',
        voice=voice,
        text=' '.join(words),
        speed=rng.randint(*SPEED_WPM),
        pitch=rng.randint(*PITCH),
        gap=rng.randint(*GAP_10MS),
        peak=rng.uniform(*PEAK),
        snr=rng.uniform(*SNR_DB),
        noise_seed=rng.getrandbits(32),
    )


# --------------------------------------------------------------- the audio


def espeak(*arguments: str) -> bytes:
    """Runs espeak-ng and returns what it writes to its standard output.

    Raises:
      CorpusError: espeak-ng is not installed, or it failed.
    """
    try:
        done = subprocess.run(['espeak-ng', *arguments], check=True, capture_output=True)
    except FileNotFoundError:
        raise CorpusError(
            'espeak-ng is not installed (Debian, Ubuntu: apt-get install espeak-ng)'
        ) from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors='replace').strip()
        raise CorpusError(f'espeak-ng failed: {reason}') from None
    return done.stdout


def require_variants() -> None:
    """Checks that espeak-ng has all variants; it would itself ignore a missing one.

    Raises:
      CorpusError: a variant is missing.
    """
    listing = espeak('--voices=variant').decode(errors='replace')
    present = set(re.findall(r'!v/(\S+)', listing))
    wanted = {name for names in VARIANTS.values() for name in names}
    if missing := sorted(wanted - present):
        raise CorpusError(f'espeak-ng lacks variants: {", ".join(missing)}')


def speak(utterance: Utterance) -> np.ndarray:
    """Speaks an utterance and returns its samples, float64 [n], at RATE_HZ."""
    from scipy.signal import resample_poly  # here, as --help need not wait for SciPy

    wav = espeak(
        '-v',
        utterance.voice,
        '-s',
        str(utterance.speed),
        '-p',
        str(utterance.pitch),
        '-g',
        str(utterance.gap),
        '-a',
        str(AMPLITUDE),
        '--stdout',
        utterance.text,
    )
    samples, rate = soundfile.read(io.BytesIO(wav))
    if rate != ESPEAK_RATE_HZ or not np.any(samples):
        raise CorpusError(f'no usable sound from voice {utterance.voice}')
    return resample_poly(samples, UP, DOWN)


def trim(samples: np.ndarray) -> np.ndarray:
    """Cuts or fills the silence at both ends to MARGIN samples, float64 [n]."""
    loud = np.abs(samples) > SPEECH_FLOOR * np.abs(samples).max()
    first, last = np.flatnonzero(loud)[[0, -1]]
    padded = np.pad(samples, MARGIN)
    return padded[first : last + 1 + 2 * MARGIN]


def record(samples: np.ndarray, utterance: Utterance) -> np.ndarray:
    """Scales samples, float64 [n], adds white noise and rounds them to int16 [n].

    The samples are rounded to multiples of a power of two that is just a few
    noise deviations wide. The noise hides the rounding, and FLAC does not
    store the low bits that are always zero.
    """
    scaled = samples * (utterance.peak * FULL_SCALE / np.abs(samples).max())
    speech = scaled[MARGIN:-MARGIN]
    deviation = np.sqrt(np.mean(speech**2)) * 10 ** (-utterance.snr / 20)
    noise = np.random.default_rng(utterance.noise_seed).normal(scale=deviation, size=scaled.shape)
    step = 2 ** max(0, math.floor(math.log2(STEP_OVER_NOISE * deviation)))
    top = FULL_SCALE // step
    steps = np.clip(np.round((scaled + noise) / step), -top, top)
    return (steps * step).astype(np.int16)


# --------------------------------------------------------------- the files


def write_flac(path: Path, samples: np.ndarray) -> None:
    """Writes int16 samples, [n], as FLAC beside `path` and renames the file."""
    part = path.with_name(path.name + '.part')
    soundfile.write(part, samples, RATE_HZ, format='FLAC', subtype='PCM_16', compression_level=1.0)
    os.replace(part, path)


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """Writes the header and the rows beside `path` and renames the file."""
    part = path.with_name(path.name + '.part')
    with open(part, 'w', newline='', encoding='utf-8') as stream:
        writer = csv.writer(stream, lineterminator='\n')
        writer.writerow(HEADER)
        writer.writerows(rows)
    os.replace(part, path)


def read_csv(path: Path) -> list[Row]:
    """Returns the rows of a CSV file; a size that is no number is -1.

    Raises:
      CorpusError: there is no such file, or it has other columns.
    """
    if not path.is_file():
        raise CorpusError(f'{path}: no such file')
    with open(path, newline='', encoding='utf-8') as stream:
        header, *rows = list(csv.reader(stream)) or [[]]
    if tuple(header) != HEADER or any(len(row) != 3 for row in rows):
        raise CorpusError(f'{path}: not a file with {",".join(HEADER)}')
    return [(name, int(size) if size.isdigit() else -1, text) for name, size, text in rows]


def flac_names(out: Path, set_name: str) -> list[str]:
    """Returns the sorted names, relative to `out`, of a set's FLAC files."""
    return sorted(path.relative_to(out).as_posix() for path in (out / set_name).glob('*.flac'))


def make_set(out: Path, set_name: str, utterances: Iterable[Utterance]) -> None:
    """Makes the audio and the CSV file of one set and drops its older audio."""
    (out / set_name).mkdir(parents=True, exist_ok=True)
    rows = []
    for utterance in utterances:
        path = out / utterance.name
        write_flac(path, record(trim(speak(utterance)), utterance))
        rows.append((utterance.name, path.stat().st_size, utterance.text))
    write_csv(out / f'{set_name}.csv', rows)
    for name in set(flac_names(out, set_name)) - {row[0] for row in rows}:
        if NAME.fullmatch(name):
            (out / name).unlink()


def make(out: Path) -> None:
    """Makes the whole corpus in the folder `out`."""
    require_variants()
    taken: set[Words] = set()
    for set_name in VARIANTS:
        make_set(out, set_name, plan_set(set_name, taken))


# --------------------------------------------------------------- the check


def check_audio(path: Path, size: int) -> list[str]:
    """Returns the faults of one audio file that should have `size` bytes."""
    if not path.is_file():
        return ['no such file']
    faults = []
    if path.stat().st_size != size:
        faults.append(f'{path.stat().st_size} bytes, not {size}')
    try:
        info = soundfile.info(path)
    except soundfile.LibsndfileError:
        return faults + ['not readable as audio']
    form = (info.format, info.subtype, info.samplerate, info.channels)
    if form != ('FLAC', 'PCM_16', RATE_HZ, 1):
        faults.append(f'not 16 kHz mono 16-bit FLAC: {form}')
    return faults


def check_row(out: Path, set_name: str, row: Row) -> list[str]:
    """Returns the faults of one CSV row, each as a line."""
    name, size, text = row
    words = text.split(' ')
    match = NAME.fullmatch(name)
    faults = check_audio(out / name, size)
    if not match or match[1] != set_name:
        faults.append('name is not SET/ACCENT+VARIANT_NNNN.flac')
    if len(words) not in LENGTHS or not set(words) <= set(DIGITS):
        faults.append(f'odd transcript: {text!r}')
    return [f'{name}: {fault}' for fault in faults]


def check_coverage(out: Path, set_name: str, rows: Sequence[Row]) -> list[str]:
    """Returns the faults of a whole set: strays, uneven lengths, missing digits."""
    faults = []
    listed = [name for name, _, _ in rows]
    for name in set(flac_names(out, set_name)) ^ set(listed):
        faults.append(f'{name}: not both in {set_name}.csv and on disk')
    if len(set(listed)) != len(listed):
        faults.append(f'{set_name}.csv: a file is listed twice')
    lengths = Counter(len(text.split()) for _, _, text in rows)
    if len({lengths[length] for length in LENGTHS}) != 1:
        faults.append(f'{set_name}.csv: uneven lengths {dict(lengths)}')
    if missing := set(DIGITS) - set(' '.join(r[2] for r in rows).split()):
        faults.append(f'{set_name}.csv: never says {sorted(missing)}')
    return sorted(faults)


def variants_in(rows: Iterable[Row]) -> set[str]:
    """Returns the set of variants in the file names of the rows."""
    return {match[3] for name, _, _ in rows if (match := NAME.fullmatch(name))}


def check_disjoint(corpus: dict[str, list[Row]]) -> list[str]:
    """Returns a fault for every variant that occurs in more than one set."""
    count = Counter(variant for rows in corpus.values() for variant in variants_in(rows))
    return [
        f'variant {variant} is in {number} sets'
        for variant, number in sorted(count.items())
        if number > 1
    ]


def disk_bytes(out: Path, corpus: dict[str, list[Row]]) -> int:
    """Returns the bytes of all audio and CSV files in whole disk blocks."""
    names = [f'{set_name}.csv' for set_name in corpus]
    names += [row[0] for rows in corpus.values() for row in rows]
    sizes = [(out / n).stat().st_size for n in names if (out / n).is_file()]
    return sum(-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes)


def check(out: Path) -> list[str]:
    """Returns all faults of the corpus in the folder `out`."""
    corpus = {name: read_csv(out / f'{name}.csv') for name in VARIANTS}
    faults = check_disjoint(corpus)
    for set_name, rows in corpus.items():
        faults += check_coverage(out, set_name, rows)
        for row in rows:
            faults += check_row(out, set_name, row)
    if (total := disk_bytes(out, corpus)) > MAX_BYTES:
        faults.append(f'{total} bytes on disk, more than {MAX_BYTES}')
    return faults


# ------------------------------------------------------------- the program


def summary(out: Path, set_name: str) -> str:
    """Returns a line with the counts of one set."""
    rows = read_csv(out / f'{set_name}.csv')
    seconds = sum(soundfile.info(out / row[0]).duration for row in rows)
    words = sum(len(row[2].split()) for row in rows)
    voices = {row[0].split('/')[1].rsplit('_', 1)[0] for row in rows}
    size = sum(row[1] for row in rows)
    return (
        f'{set_name}: {len(rows)} utterances, {seconds:.1f} s, '
        f'{words} words, {len(voices)} voices, '
        f'{len(variants_in(rows))} variants, {size} bytes'
    )


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        '--out',
        type=Path,
        metavar='DIR',
        default=Path(__file__).resolve().parent,
        help="folder of the corpus (default: the script's)",
    )
    parser.add_argument(
        '--check', action='store_true', help='verify the corpus in DIR and make nothing'
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the corpus if asked, checks it, and returns the exit status."""
    options = parse_arguments(arguments)
    try:
        if not options.check:
            make(options.out)
        faults = check(options.out)
        for fault in faults:
            print(fault, file=sys.stderr)
        if not faults:
            print('\n'.join(summary(options.out, name) for name in VARIANTS))
        return 1 if faults else 0
    except (CorpusError, OSError) as error:
        print(f'make_digits: {error}', file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
