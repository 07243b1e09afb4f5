"""Joins the clips of the digits' test set to one long recording, as a test of `transcribe`.

    python data/digits/join_clips.py joined --hours 1 --noise -60
    python -m util.tools.transcribe export joined/joined.csv

writes joined/joined.flac, 16 kHz, with pauses of 0.5 to 1 s between the clips, and the manifest
joined/joined.csv with its transcript, so that `transcribe` prints the error rates. The clips come
in random orders, again and again; the same arguments give the same recording.
"""

import argparse
import csv
import os
import sys

import numpy as np
import soundfile

DIGITS = os.path.dirname(os.path.abspath(__file__))
RATE = 16000  # Hz
PAUSES_S = (0.5, 1.0)  # s, shortest and longest


def read_clips():
    """Returns (int16 samples, transcript) of each clip of the test set."""
    with open(os.path.join(DIGITS, 'test.csv'), newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    return [
        (
            soundfile.read(os.path.join(DIGITS, row['wav_filename']), dtype='int16')[0],
            row['transcript'],
        )
        for row in rows
    ]


def join(folder, hours, noise_db, seed):
    """Writes the recording and its manifest.

    Args:
      folder: where to; it is made.
      hours: length of the recording.
      noise_db: level of white noise over all of it, in dB of full scale; None: digital silence.
      seed: of pauses, orders and noise.
    """
    rng = np.random.default_rng(seed)
    clips, transcripts, n_samples = read_clips(), [], 0
    deviation = 0.0 if noise_db is None else 32768 * 10 ** (noise_db / 20)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, 'joined.flac')
    with soundfile.SoundFile(path, 'w', RATE, 1, format='FLAC', subtype='PCM_16') as file:
        while n_samples < hours * 3600 * RATE:
            for index in rng.permutation(len(clips)):
                clip, transcript = clips[index]
                pause = np.zeros(round(rng.uniform(*PAUSES_S) * RATE), np.int16)
                samples = np.concatenate([clip, pause]) + rng.normal(
                    0, deviation, len(clip) + len(pause)
                )
                file.write(np.clip(np.round(samples), -32768, 32767).astype(np.int16))
                transcripts.append(transcript)
                n_samples += len(samples)
                if n_samples >= hours * 3600 * RATE:
                    break
    with open(os.path.join(folder, 'joined.csv'), 'w', newline='', encoding='utf-8') as manifest:
        writer = csv.writer(manifest)
        writer.writerow(['wav_filename', 'wav_filesize', 'transcript'])
        writer.writerow(['joined.flac', os.path.getsize(path), ' '.join(transcripts)])


def main(arguments):
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description='Joins the test clips to one long recording.')
    parser.add_argument(
        'folder', metavar='FOLDER', help='where to write joined.flac and joined.csv'
    )
    parser.add_argument('--hours', type=float, default=1.0, help='its length (default: 1)')
    parser.add_argument(
        '--noise', type=float, metavar='DB', help='white noise, in dB of full scale'
    )
    parser.add_argument('--seed', type=int, default=0, help='of pauses, orders and noise')
    options = parser.parse_args(arguments)
    join(options.folder, options.hours, options.noise, options.seed)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
