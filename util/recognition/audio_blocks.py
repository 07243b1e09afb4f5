"""Reads an audio file block by block, so that a recording of any length takes little memory."""

import math
from collections.abc import Iterator

import numpy as np
import scipy.signal

from util import audio, records

BLOCK_S = 30  # s of audio that are read at once
TAPS = 10  # half the length of resample_poly's filter, in samples of the lower of the two rates


def read(utterance: records.Utterance, sample_rate: int) -> Iterator[np.ndarray]:
    """Yields the samples of an utterance as one channel at `sample_rate`, block by block.

    The blocks together are what audio.read_audio returns. An utterance that fits into one block
    has the same samples to the last bit; across the borders of blocks the resampled ones differ by
    rounding.

    Yields:
      float64 [n_samples], in the range of 16-bit integers; one block or more.
    Raises:
      AudioError: as audio.read_audio.
    """
    info = audio.audio_info(utterance.wav_filename)
    audio.check_channel(info, utterance.channel)
    divisor = math.gcd(info.rate, sample_rate)
    up, down = sample_rate // divisor, info.rate // divisor
    blocks = _source_blocks(utterance, info, down)
    return blocks if up == down else resampled(blocks, up, down)


def _source_blocks(utterance, info, multiple):
    """Yields the samples at the rate of the file, float64 [n_samples], one block or more; the
    number of samples of a block is a multiple of `multiple`, but for the last one."""
    first, count = audio.segment(info, utterance.start_s, utterance.stop_s)
    size = max(1, min(info.rate * BLOCK_S, audio.BLOCK_SAMPLES // info.channels) // multiple)
    size *= multiple
    with audio.open_audio(utterance.wav_filename) as file:
        for samples in audio.read_blocks(file, first, count, size):
            yield audio.one_channel(samples, utterance.channel)


def resampled(blocks: Iterator[np.ndarray], up: int, down: int) -> Iterator[np.ndarray]:
    """Resamples blocks so that they make what scipy.signal.resample_poly makes of the whole.

    An output sample depends on a limited number of input samples on either side, the margin. A
    block waits until the next one has come, and is resampled between margins, which are cut off.

    Args:
      blocks: float64 [n_samples] each.
      up, down: the ratio of the rates, without a common divisor.
    Yields:
      float64 [n_samples]; one block or more.
    """
    margin = -(-(TAPS * max(up, down) // up + 1) // down) * down  # input samples
    held, before = np.zeros(0), 0  # `before` samples of `held` are the margin before the rest
    for block in blocks:
        ready = (len(held) - before - margin) // down * down
        if ready > 0:
            stop = before + ready
            converted = scipy.signal.resample_poly(held[: stop + margin], up, down)
            yield converted[before * up // down : stop * up // down]
            first = max(0, stop - margin)
            held, before = held[first:], stop - first
        held = np.concatenate([held, block])
    if len(held):
        held = scipy.signal.resample_poly(held, up, down)
    yield held[before * up // down :]
