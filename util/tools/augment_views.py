"""The work of `augment_samples`: augments an utterance item by item, writes, draws and measures."""

import argparse
import os
import time
from typing import NamedTuple

import numpy as np
import soundfile

from util import audio, augment_setting as setting, config as settings, errors, files
from util import importers, records, text
from util.augmentation import augmenter
from util.augmentation.draws import Draws
from util.tools import pictures

ANY = 'e'  # transcript of an audio file that has none: a single label
PICTURE = 'spectrograms.png'
COLUMNS = 2  # items side by side
SPECTRUM_S, SPECTRUM_STEP_S = 0.025, 0.005  # s, window and step of the spectrograms
RANGE_DB = 70  # dB below the loudest point that have a colour of their own
FREQUENCIES_KHZ = (0.25, 0.5, 1, 2, 4, 7, 14)  # marks on the axis of mel bands
MEASURED = 100  # utterances that are augmented to measure the speed
ROUNDS = 3  # times that they are; the fastest counts


class RecordedDraws(Draws):
    """Draws that happen, whatever their probability, and that know what was drawn."""

    def __init__(self, item, key, share):
        super().__init__(item, key, share)
        self.happens = True
        self.drawn: dict[str, list[str]] = {}

    def text(self, key):
        return self._record(key, super().text(key))

    def number(self, key):
        return self._record(key, super().number(key))

    def integer(self, key):
        return self._record(key, super().integer(key))

    def _record(self, key, value):
        shown = '%.3g' % value if isinstance(value, float) else str(value)
        self.drawn.setdefault(key, []).append(shown)
        return value


class View(NamedTuple):
    """An item before and after: its values as a picture."""

    title: str
    domain: str
    before: np.ndarray  # [n] samples, or [n_steps, bands or coefficients]
    after: np.ndarray


def run(options: argparse.Namespace) -> None:
    """Does what the command line says.

    Raises:
      DeepSpeechError: a setting, the utterance or the folder cannot be used.
    """
    config, _ = settings.load()
    items = [setting.parse_item(setting.with_defaults(name)) for name in setting.AUGMENTATIONS]
    items = setting.parse(config.augment) or items
    if options.measure:
        print('\n'.join(_measured(config, items, options.audio)))
        return
    example = _examples(config, options.audio)[0]
    files.make_dir(options.out_dir, 'OUT_DIR')
    samples = _read(example, config)
    views = []
    _write_wav(os.path.join(options.out_dir, 'before.wav'), samples, config)
    for index, item in enumerate(items):
        key = [config.random_seed, options.epoch, 0, index]
        draws = RecordedDraws(item, key, options.share)
        view = _view(config, example, samples, draws)
        views.append(view)
        line = '%2d %s' % (index + 1, view.title)
        if item.domain == setting.SIGNAL:
            name = '%02d-%s.wav' % (index + 1, item.name)
            _write_wav(os.path.join(options.out_dir, name), view.after, config)
            line += ': ' + name
        print(line)
    draw(views, config, os.path.join(options.out_dir, PICTURE))
    print('picture of all: %s' % os.path.join(options.out_dir, PICTURE))


def _examples(config, path):
    """Returns the examples to augment: an audio file, or those of the training set."""
    if path is not None:
        try:
            seconds = audio.audio_info(path)
        except audio.AudioError as error:
            raise errors.DataError('%s: %s' % (path, error)) from None
        utterance = records.Utterance(path, path)
        return [records.Example(utterance, ANY, 0, seconds.frames / seconds.rate)]
    examples = importers.read_data_sets(config, text.load_alphabet(config.alphabet)).train.examples
    if not examples:
        raise errors.DataError('no usable training utterance is left')
    return examples


def _read(example, config):
    """Returns the samples of an example, float32 [n] in the range of 16-bit integers."""
    utterance = example.utterance
    try:
        samples = audio.read_utterance(utterance, config.sample_rate)
        audio.check_length(len(samples), config.sample_rate)
    except audio.AudioError as error:
        raise errors.DataError('%s: %s' % (utterance.wav_filename, error)) from None
    return samples.astype(np.float32)


def _write_wav(path, samples, config):
    """Writes samples, float [n] in the range of 16-bit integers, as a WAV file."""
    clipped = np.clip(np.rint(samples), -audio.INT16_SCALE, audio.INT16_SCALE - 1)
    temporary = path + '.tmp'
    try:
        soundfile.write(temporary, clipped.astype(np.int16), config.sample_rate, format='WAV')
        os.replace(temporary, path)
    except (OSError, soundfile.LibsndfileError) as error:
        raise errors.DeepSpeechError('%s cannot be written: %s' % (path, error)) from None


def _view(config, example, samples, draws):
    """Applies one item; returns its View."""
    item, rate = draws.item, config.sample_rate
    augmentation = augmenter.Augmenter(config, [item])
    if item.domain == setting.SIGNAL:
        shortest = augmenter.shortest_signal(example.transcript, rate, config.feature_stride)
        before, after = samples, augmentation.signal(samples, [draws], min(shortest, len(samples)))
    elif item.domain == setting.FEATURES:
        before = _mfcc(samples, config)
        after = augmentation.on_frames(before, [draws], item.domain)
    else:
        before = augmentation.spectrogram(samples)
        if item.domain == setting.FILTERS:
            after = augmentation.spectrogram(samples, augmenter.filter_factor([draws]))
        else:
            after = augmentation.on_frames(before, [draws], item.domain)
        before, after = before[:, :-1], after[:, :-1]
    return View(_title(draws), item.domain, before, after)


def _mfcc(samples, config):
    """Returns the MFCC of samples, float32 [n_steps, n_input]."""
    features = audio.mfcc(
        samples, config.sample_rate, config.n_input, config.feature_stride, config.dynamic_range
    )
    return features.astype(np.float32)


def _title(draws):
    """Returns the name of an item and what was drawn, such as 'speed  factor 1.08'."""
    keys = setting.AUGMENTATIONS[draws.item.name].keys
    values = [
        ' '.join([key, ', '.join(drawn), *filter(None, [keys[key].unit])])
        for key, drawn in draws.drawn.items()
    ]
    domains = setting.AUGMENTATIONS[draws.item.name].domains
    name = '%s (%s)' % (draws.item.name, draws.item.domain) if len(domains) > 1 else draws.item.name
    return ': '.join([name, *['; '.join(values)][: len(values)]])


# The picture


def draw(views: list[View], config: settings.Config, path: str) -> None:
    """Draws the spectrograms, mel energies or MFCC of all views before and after.

    Raises:
      DeepSpeechError: the file cannot be written, or matplotlib is not installed.
    """
    pyplot = pictures.pyplot()
    rows = -(-len(views) // COLUMNS)
    figure = pyplot.figure(figsize=(8.5 * COLUMNS, 2.6 * rows), layout='constrained')
    parts = figure.subfigures(rows, COLUMNS, squeeze=False, hspace=0.04, wspace=0.03).ravel()
    for part, view in zip(parts, views):
        _draw_view(part, view, config)
    pictures.save(figure, path, dpi=90)


def _draw_view(part, view, config):
    """Draws a View into a part of the figure: before on the left, after on the right."""
    part.suptitle(view.title, fontsize=12, fontweight='bold')
    from matplotlib import ticker

    pictures = [_picture(values, view.domain, config) for values in (view.before, view.after)]
    highest = max(picture.max() for picture, _ in pictures)
    lowest = max(min(picture.min() for picture, _ in pictures), highest - RANGE_DB)
    axes = part.subplots(1, 2, sharex=True, sharey=True)
    for axis, (picture, seconds), caption in zip(axes, pictures, ('before', 'after')):
        axis.imshow(
            picture.T,
            origin='lower',
            aspect='auto',
            interpolation='nearest',
            cmap='magma',
            vmin=lowest,
            vmax=highest,
            extent=(0, seconds, *_extent(picture, view.domain, config)),
        )
        axis.set_title(caption, fontsize=10)
        axis.set_xlabel('time in s', fontsize=9)
        axis.tick_params(labelsize=9)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(6))
        axis.xaxis.set_major_formatter('{x:g}')
    axes[0].set_xlim(0, max(seconds for _, seconds in pictures))
    axes[0].set_facecolor('0.9')
    axes[1].set_facecolor('0.9')
    _label(axes[0], view.domain, config)


def _picture(values, domain, config):
    """Returns (float [n, m] to show, seconds): dB, or the values of MFCC from the second one."""
    if domain == setting.SIGNAL:
        return _spectrogram(values, config.sample_rate), len(values) / config.sample_rate
    seconds = len(values) * audio.WIN_STEP_S * config.feature_stride
    if domain == setting.FEATURES:
        return values[:, 1:], seconds  # the first is the energy, which is on another scale
    return values * (10 / np.log(10)), seconds


def _spectrogram(samples, rate):
    """Returns the spectrogram of samples, float [n], in dB: float [n_windows, bins]."""
    size, step = round(SPECTRUM_S * rate), round(SPECTRUM_STEP_S * rate)
    padded = np.pad(samples, (size // 2, size))
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)[: len(samples) : step]
    power = np.abs(np.fft.rfft(windows * np.hanning(size))) ** 2
    return 10 * np.log10(power + 1)


def _extent(picture, domain, config):
    """Returns the ends of the vertical axis."""
    if domain == setting.SIGNAL:
        return 0, config.sample_rate / 2000
    return (0.5, picture.shape[1] + 0.5) if domain == setting.FEATURES else (-0.5, 25.5)


def _label(axis, domain, config):
    """Labels the vertical axis."""
    axis.set_ylabel('coefficient' if domain == setting.FEATURES else 'frequency in kHz', fontsize=9)
    if domain in (setting.SIGNAL, setting.FEATURES):
        return
    highest = config.sample_rate / 2
    marks = [each for each in FREQUENCIES_KHZ if 1000 * each <= highest]
    axis.set_yticks(
        [_band(1000 * each, highest) for each in marks], ['%g' % each for each in marks]
    )
    axis.set_ylim(-0.5, 25.5)


def _band(frequency, highest):
    """Returns the place of a frequency, in Hz, on the axis of mel bands, which counts from 0."""
    from python_speech_features import base

    width = base.hz2mel(highest) / (audio.N_FILTERS + 1)
    return base.hz2mel(frequency) / width - 1


# The speed


def _measured(config, items, path):
    """Yields the lines of the table of speeds."""
    examples = _examples(config, path)[:MEASURED]
    yield '%d utterances, %.1f s, at %d Hz; seconds of audio in a second of one core:' % (
        len(examples),
        sum(example.seconds for example in examples),
        config.sample_rate,
    )
    for name, chosen in (
        ('features only', [setting.parse_item('vtlp[factor=1]')]),
        *((item.text, [item._replace(p=1.0)]) for item in items),
        *([('all together, with their probabilities', items)] if len(items) > 1 else []),
    ):
        yield '%6.0f  %s' % (_speed(config, chosen, examples), name)


def _speed(config, items, examples):
    """Returns how many seconds of audio are augmented in a second of processor time, with the
    features that are then computed; the audio is in memory."""
    augmentation, best = augmenter.Augmenter(config, items), np.inf
    clean = [_mfcc(_read(example, config), config) for example in examples]
    for epoch in range(ROUNDS + 1):  # the first is not counted
        started = time.process_time()
        for number, (example, frames) in enumerate(zip(examples, clean)):
            augmentation.features(example, (epoch, number), 0.5, lambda frames=frames: frames)
        best = min(best, time.process_time() - started) if epoch else best
    return sum(example.seconds for example in examples) / best
