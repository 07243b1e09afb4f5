"""Feeds damaged files to what reads files, and looks for errors that are not the documented ones.

    python tests/faults/fuzz.py TARGET [--minutes 20] [--executions N] [--seed 1]

TARGET is one of audio, stm, transcript, manifest, state. Good files are changed at random (the seed
is printed) and read. What counts as a finding: an exception other than the documented one, more
than LIMIT_S for one input, or more than LIMIT_BYTES of memory. An input that causes a finding is
kept in the folder fuzz-findings; the exit status is 1 if there is one.
"""

import argparse
import contextlib
import faulthandler
import io
import json
import logging
import os
import pathlib
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
import warnings

import numpy as np
import soundfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from util import audio, errors, text  # noqa: E402 - the folder must be known before
from util.corpora import manifests, stm  # noqa: E402
from util.importers import fisher, swb, ted  # noqa: E402

LIMIT_S = 20  # for one input
LIMIT_BYTES = 1 << 30  # by which the process may grow
NUMBERS = (0, 1, 2, 127, 128, 255, 1 << 15, (1 << 16) - 1, 1 << 31, (1 << 31) - 1, (1 << 32) - 1)
CONTAINERS = (
    *(('WAV', each) for each in ('PCM_16', 'GSM610', 'IMA_ADPCM', 'MS_ADPCM', 'FLOAT', 'ULAW')),
    *(('RF64', 'PCM_16'), ('W64', 'PCM_16'), ('AIFF', 'PCM_16'), ('AU', 'PCM_16')),
    *(('CAF', 'PCM_16'), ('CAF', 'ALAC_16'), ('FLAC', 'PCM_16'), ('NIST', 'PCM_16')),
    *(('OGG', 'VORBIS'), ('OGG', 'OPUS'), ('MP3', 'MPEG_LAYER_III'), ('WAVEX', 'PCM_24')),
)
ALPHABET = text.load_alphabet()


def mutated(content, others, rng):
    """Returns the content with one to eight changes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        if rng.random() < 0.5:  # headers are where the mistakes are
            at = min(at, rng.randrange(120))
        kind = rng.randrange(7)
        if kind == 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            number = rng.choice(NUMBERS) + rng.choice((-1, 0, 0, 1))
            form = rng.choice(('<I', '>I', '<H', '>H', '<Q', '>Q', 'B'))
            size = struct.calcsize(form)
            packed = struct.pack(form, number % (1 << 8 * size))
            data[at : at + size] = packed
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 4, 40, 4000))]
        elif kind == 3:
            data[at:at] = data[at : at + rng.choice((1, 8, 100))] * rng.choice((1, 2, 300))
        elif kind == 4:
            data[at:at] = bytes(rng.choices(b'\0\xff"\',;\n\r\t[]{}\\<>()x9- ', k=rng.randrange(9)))
        elif kind == 5:
            del data[at:]
        else:
            data[at:] = rng.choice(others)[at:]
    return bytes(data)


class Audio:
    """The reader of audio files."""

    allowed = (audio.AudioError,)

    def __init__(self, folder):
        self._path = os.path.join(folder, 'input.wav')
        time_s = np.arange(2000) / 16000
        sound = np.int16(8000 * np.sin(2 * np.pi * 300 * time_s))
        self.good = []
        for container, subtype in CONTAINERS:
            content = io.BytesIO()
            soundfile.write(content, sound, 16000, format=container, subtype=subtype)
            self.good.append(content.getvalue())

    def read(self, content):
        """Reads a file in the ways in which runs do."""
        pathlib.Path(self._path).write_bytes(content)
        info = audio.audio_info(self._path)
        assert 0 <= info.frames < audio.UNKNOWN_FRAMES
        part = audio.read_audio(self._path, start_s=0.01, stop_s=0.05, channel=0)
        samples = audio.read_audio(self._path)
        assert np.isfinite(samples).all() and np.isfinite(part).all()
        expected = audio.resampled_length(info.frames, info.rate, 16000)
        assert abs(len(samples) - expected) <= audio.MP3_SLACK * 4, (len(samples), info)


class Stm:
    """The readers of time-marked transcripts."""

    allowed = ()
    good = [
        b"talk_1 1 talk_1 0.5 1.75 <o,f0,male> well {NOISE} then(2) it 's\n;; x\n" * 3,
        b'# fe_03_00001.sph\n\n0.60 1.02 A: hello\n1.10 2.20 B: (( who )) [laugh]\n',
        b'sw2001A-ms98-a-0001 0.000000 0.977625 [silence] so-\n' * 4,
    ]

    def __init__(self, folder):
        self._folder, self._path = folder, os.path.join(folder, 'input.stm')

    def read(self, content):
        """Lists the utterances of a transcript in each of the forms."""
        pathlib.Path(self._path).write_bytes(content)
        for parse in (
            ted.parse_line,
            lambda line: fisher.parse_line(line, 'r'),
            lambda line: swb.parse_line(line, '2001'),
        ):
            for each in stm.list_parts(self._path, self._folder, {'talk_1': 'x'}, parse):
                each.name.encode('utf-8', 'surrogateescape')


class Transcript:
    """The clean-up of transcripts."""

    allowed = ()
    good = [
        'Well, then\u2026 it\u2019s 5 o\u2019clock; caf\u00e9 \u00df \ufb01 e\u0301'.encode()
    ] * 2

    def __init__(self, folder):
        pass

    def read(self, content):
        """Cleans a transcript; what is clean must stay as it is."""
        even = content[: len(content) // 2 * 2]
        for words in (content.decode(errors='replace'), even.decode('utf-16-le', 'replace')):
            cleaned, unknown = text.clean_transcript(words, ALPHABET)
            assert text.clean_transcript(cleaned, ALPHABET) == (cleaned, unknown)
            if not unknown:
                ALPHABET.encode(cleaned)
            for char in unknown:
                text.describe_char(char)


class Manifest:
    """The readers of manifests."""

    allowed = (errors.DataError,)
    good = [
        b'wav_filename,wav_filesize,transcript\na.wav,10,one\n"b.wav",20,"two, ""three"""\n' * 3,
        b'\n'.join(
            json.dumps(dict(audio_filepath='a.wav', text='one', offset=n, duration=2.5)).encode()
            for n in range(5)
        ),
    ]

    def __init__(self, folder):
        self._paths = [os.path.join(folder, name) for name in ('input.csv', 'input.json')]

    def read(self, content):
        """Reads a manifest in both forms."""
        for path in self._paths:
            pathlib.Path(path).write_bytes(content)
            with contextlib.suppress(errors.DataError):
                for each in manifests.read_manifest(path):
                    assert '\0' not in each.wav_filename


class State:
    """The reader of the state file beside checkpoints."""

    allowed = (errors.CheckpointError,)
    good = [
        b'model_checkpoint_path: "model.ckpt-20"\nall_model_checkpoint_paths: "model.ckpt-10"\n'
        b'all_model_checkpoint_paths: "model.ckpt-20"\nlast_preserved_timestamp: 1.5\n'
    ]

    def __init__(self, folder):
        from util.run import checkpoint_files  # loads TensorFlow

        self._module, self._folder = checkpoint_files, folder

    def read(self, content):
        """Lists the checkpoints and looks for the newest."""
        pathlib.Path(self._folder, 'checkpoint').write_bytes(content)
        for path in self._module.candidates(self._folder):
            assert os.path.dirname(path) == self._folder, path
        self._module.newest_whole(self._folder)


TARGETS = {
    'audio': Audio,
    'stm': Stm,
    'transcript': Transcript,
    'manifest': Manifest,
    'state': State,
}


def fuzz(name, seed, executions=None, minutes=None, kept='fuzz-findings'):
    """Runs a target until so many executions or minutes are over.

    Args:
      name: one of TARGETS.
      seed: of the random changes; the same executions follow from the same seed.
      executions, minutes: when to end; None: no such limit.
      kept: folder for the inputs that cause a finding; it is made if there is one.
    Returns:
      (number of executions, number of inputs that were read without an error, list of findings).
    """
    rng, findings, done, read = random.Random(seed), [], 0, 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        target = TARGETS[name](folder)
        before = _memory()
        while done != executions and (minutes is None or time.monotonic() - started < 60 * minutes):
            content = mutated(rng.choice(target.good), target.good, rng)
            problem, done, began = None, done + 1, time.monotonic()
            faulthandler.dump_traceback_later(10 * LIMIT_S, exit=True)  # a hang in C code
            try:
                target.read(content)
                read += 1
            except target.allowed:
                pass
            except Exception:
                problem = traceback.format_exc(limit=-4)
            if time.monotonic() - began > LIMIT_S:
                problem = 'took %.0f s' % (time.monotonic() - began)
            if _memory() > before + LIMIT_BYTES:
                problem, before = 'memory', _memory()
            if problem:
                findings.append(problem)
                os.makedirs(kept, exist_ok=True)
                path = os.path.join(kept, '%s-%d-%d' % (name, seed, done))
                pathlib.Path(path).write_bytes(content)
    faulthandler.cancel_dump_traceback_later()
    return done, read, findings


def _memory():
    """Returns the largest size in bytes that the process has had in memory."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    """Runs a target from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('target', choices=list(TARGETS))
    parser.add_argument('--minutes', type=float)
    parser.add_argument('--executions', type=int)
    parser.add_argument('--seed', type=int, default=1)
    options = parser.parse_args()
    if options.minutes is None and options.executions is None:
        options.minutes = 20.0
    logging.disable(logging.CRITICAL)
    warnings.simplefilter('ignore')
    np.seterr(all='ignore')
    done, read, findings = fuzz(options.target, options.seed, options.executions, options.minutes)
    for each in sorted(set(findings)):
        print('%d times: %s' % (findings.count(each), each))
    print(
        '%s, seed %d: %d executions, %d read, %d findings, %d MB at most'
        % (options.target, options.seed, done, read, len(findings), _memory() // 2**20)
    )
    return 1 if findings else 0


if __name__ == '__main__':
    sys.exit(main())
