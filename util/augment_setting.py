"""The setting `ds_augment`: which augmentations there are, and how they are written.

The setting is a list of items, separated by spaces, in the order in which they are applied:

    speed[p=0.5,factor=1~0.2] overlay[source=pink,snr=30:10~5] time_mask

An item is a name, with keys and values in brackets; what is left out has its default. An item that
holds spaces needs quotes, by the rules of a shell. A value is `value`; or `value~range`, drawn
uniformly from value - range to value + range for each utterance; or `from:to`, which moves linearly
over the training; or `from:to~range`. `p` is the probability that an utterance gets the
augmentation.

This module only declares and parses; util/augmentation does the work.

Source: the syntax, and most names, keys and units, are those of DeepSpeech 0.9 (`--augment`).
"""

import difflib
import math
import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from util import errors

SETTING = 'ds_augment'
SIGNAL, FILTERS, SPECTROGRAM, FEATURES = 'signal', 'filters', 'spectrogram', 'features'
NOISES = ('white', 'pink')  # sources of noise that are made, not read
FULL_SCALE_DB = 3.0103  # dB, the peak of a sine of full scale, whose power is 0 dB
NUMBER, INTEGER, CHOICE, SOURCE = 'number', 'integer', 'choice', 'source'  # kinds of values
_NUMBER = r'[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?'
_RANGE = re.compile(r'(?:(%s):)?(%s)(?:~(%s))?' % (_NUMBER, _NUMBER, _NUMBER))
_ITEM = re.compile(r'([A-Za-z0-9_-]+)(?:\[(.*)\])?', re.DOTALL)


class Range(NamedTuple):
    """A value that may move over the training and may be drawn from a range around it."""

    start: float  # at the beginning of the training
    end: float  # at its end
    radius: float = 0.0  # of the range

    def center(self, share: float) -> float:
        """Returns the middle of the range when this share of the training is done; shares outside
        0 to 1 stand for the nearest of these."""
        return self.start + (self.end - self.start) * min(max(share, 0.0), 1.0)


class Key(NamedTuple):
    """What may be said about an augmentation."""

    default: str | Mapping[str, str]  # as it is written; or one for each domain
    unit: str = ''
    low: float | None = None  # smallest value that may be drawn
    high: float | None = None  # largest value that may be drawn
    kind: str = NUMBER
    choices: tuple[str, ...] = ()

    def default_of(self, domain: str) -> str:
        """Returns the default in this domain, as it is written; '' if there is none."""
        return self.default if isinstance(self.default, str) else self.default[domain]


class Augmentation(NamedTuple):
    """An augmentation: what it does, where it acts, and its keys."""

    meaning: str
    domains: tuple[str, ...]  # the first is the default; several are chosen from by `domain`
    keys: dict[str, Key]

    @property
    def all_keys(self) -> dict[str, Key]:
        """Returns the keys with those that many augmentations have."""
        domain = Key(self.domains[0], kind=CHOICE, choices=self.domains)
        return {'p': _P, **self.keys, **({'domain': domain} if len(self.domains) > 1 else {})}


class Item(NamedTuple):
    """One item of the setting."""

    text: str  # as it was written
    name: str
    p: float  # probability
    domain: str
    values: dict[str, Range | str]  # of all other keys


_P = Key('1', '', 0.0, 1.0)
_FACTOR = Key('1~0.1', '', 0.4, 2.5)
_DOMAINS = (SPECTROGRAM, FEATURES, SIGNAL)

AUGMENTATIONS = {
    'speed': Augmentation(
        'plays the utterance faster or slower, so that tempo and pitch change together',
        (SIGNAL,),
        {'factor': _FACTOR},
    ),
    'tempo': Augmentation(
        'makes the speech faster or slower at the same pitch', (SIGNAL,), {'factor': _FACTOR}
    ),
    'pitch': Augmentation(
        'raises or lowers the pitch (with the formants) at the same tempo',
        (SIGNAL,),
        {'pitch': Key('1~0.1', '', 0.4, 2.5)},
    ),
    'overlay': Augmentation(
        'adds noise: of a file, of the files of a folder or manifest, or made (`white`, `pink`); '
        'snr is the ratio of the powers of utterance and noise',
        (SIGNAL,),
        {
            'source': Key('', kind=SOURCE),
            'snr': Key('3', 'dB', -60.0, 120.0),
            'layers': Key('1', '', 1.0, 100.0, INTEGER),
        },
    ),
    'reverb': Augmentation(
        'adds echoes: delay is the time between two, decay what each loses',
        (SIGNAL,),
        {'delay': Key('20', 'ms', 1.0, 1000.0), 'decay': Key('10', 'dB', 1.0, 200.0)},
    ),
    'resample': Augmentation(
        'takes away what a recording at a lower sample rate would not hold',
        (SIGNAL,),
        {'rate': Key('8000', 'Hz', 1000.0, 192000.0, INTEGER)},
    ),
    'codec': Augmentation(
        'compresses and decompresses with loss, by MP3 or Opus',
        (SIGNAL,),
        {
            'bitrate': Key('16000', 'bit/s', 3200.0, 320000.0, INTEGER),
            'format': Key('mp3', kind=CHOICE, choices=('mp3', 'opus')),
        },
    ),
    'volume': Augmentation(
        'sets the level of the loudest sample; %s dB is full scale' % FULL_SCALE_DB,
        (SIGNAL,),
        {'dbfs': Key(str(FULL_SCALE_DB), 'dB', -100.0, FULL_SCALE_DB)},
    ),
    'vtlp': Augmentation(
        'moves the centres of the mel filters by a factor, as if the vocal tract were of another '
        'length',
        (FILTERS,),
        {'factor': Key('1~0.1', '', 0.5, 2.0)},
    ),
    'warp': Augmentation(
        'shifts nt points in time and nf in frequency, with what is around them; the standard '
        'deviation of a shift is wt (wf) times half the distance between two points',
        (SPECTROGRAM,),
        {
            'nt': Key('1', '', 0.0, 1000.0, INTEGER),
            'nf': Key('1', '', 0.0, 25.0, INTEGER),
            'wt': Key('0.1', '', 0.0, 10.0),
            'wf': Key('0', '', 0.0, 10.0),
        },
    ),
    'frequency_mask': Augmentation(
        'replaces n groups of neighbouring mel bands by their mean over the utterance',
        (SPECTROGRAM,),
        {'n': Key('3', '', 0.0, 100.0, INTEGER), 'size': Key('2', 'bands', 0.0, 25.0, INTEGER)},
    ),
    'time_mask': Augmentation(
        'replaces n parts of the utterance by its mean (domain signal: by silence)',
        _DOMAINS,
        {'n': Key('3', '', 0.0, 10000.0, INTEGER), 'size': Key('50', 'ms', 0.0, 100000.0)},
    ),
    'dropout': Augmentation(
        'replaces single values by their mean over the utterance (domain signal: by 0)',
        _DOMAINS,
        {'rate': Key('0.05', '', 0.0, 1.0)},
    ),
    'add': Augmentation(
        'adds normally distributed random numbers: to the natural logarithms of the energies, to '
        'MFCC, or to samples, of which 1 is full scale',
        (FEATURES, SPECTROGRAM, SIGNAL),
        {'stddev': Key({FEATURES: '1', SPECTROGRAM: '0.5', SIGNAL: '0.003'}, '', 0.0, 1e6)},
    ),
    'multiply': Augmentation(
        'multiplies by normally distributed random numbers around 1',
        (FEATURES, SPECTROGRAM, SIGNAL),
        {'stddev': Key('0.1', '', 0.0, 1e6)},
    ),
}


def parse(text: str) -> list[Item]:
    """Parses the setting.

    Args:
      text: value of the setting; empty: no augmentation.
    Returns:
      A list of Item.
    Raises:
      ConfigError: the text cannot be used; the message begins with ds_augment.
    """
    try:
        written = shlex.split(text)
    except ValueError as error:
        raise errors.ConfigError(
            '%s: the quotes are not balanced (%s) in %r' % (SETTING, error, text)
        ) from None
    return [parse_item(each) for each in written]


def with_defaults(name: str) -> str:
    """Returns an item as it is written with all its keys but p, with their defaults; the source of
    noise, which has none, is pink noise."""
    augmentation = AUGMENTATIONS[name]
    keys = [
        '%s=%s' % (key, declared.default_of(augmentation.domains[0]) or 'pink')
        for key, declared in augmentation.all_keys.items()
        if key != 'p'
    ]
    return '%s[%s]' % (name, ','.join(keys))


def join(items: list[str]) -> str:
    """Returns the setting as one text, which `parse` splits into the same items."""
    return ' '.join(
        item if item and not re.search(r'[\s\'"\\]', item) else shlex.quote(item) for item in items
    )


def parse_item(written: str) -> Item:
    """Parses one item.

    Raises:
      ConfigError: the item cannot be used.
    """
    matched = _ITEM.fullmatch(written.strip())
    if not matched or not _balanced(matched[2] or ''):
        raise errors.ConfigError(
            '%s: %r must be name or name[key=value,...], with both brackets and no space within '
            'them (else with quotes around the item)' % (SETTING, written)
        )
    name = matched[1]
    if name not in AUGMENTATIONS:
        raise errors.ConfigError(
            '%s: %s is not an augmentation; the nearest is %s; there are %s'
            % (SETTING, name, _nearest(name, AUGMENTATIONS), ', '.join(AUGMENTATIONS))
        )
    keys = AUGMENTATIONS[name].all_keys
    given = _split(matched[2] or '', name, keys)
    domain = given.get('domain', AUGMENTATIONS[name].domains[0])
    values = {
        key: _parse_value(name, key, given.get(key, keys[key].default_of(domain)), keys[key])
        for key in ['domain'] * ('domain' in keys) + [key for key in keys if key != 'domain']
    }
    values.pop('domain', None)
    p = values.pop('p')
    if p.start != p.end or p.radius:
        raise errors.ConfigError(
            '%s: %s: p must be one number from 0 to 1, got %s' % (SETTING, name, given['p'])
        )
    return Item(written, name, p.start, domain, values)


def _balanced(text):
    """Tells whether each bracket within an item's brackets is closed."""
    depth = 0
    for char in text:
        depth += (char == '[') - (char == ']')
        if depth < 0:
            return False
    return not depth


def _split(text, name, keys):
    """Splits what is within brackets: {key: value as written}.

    A part without = belongs to the source before it, as the name of a file may have commas.
    """
    given, last = {}, None
    for part in text.split(',') if text.strip() else ():
        key, equals, value = (each.strip() for each in part.partition('='))
        if equals and key not in keys:
            raise errors.ConfigError(
                '%s: %s has no key %s; the nearest is %s; its keys are %s'
                % (SETTING, name, key or "''", _nearest(key, keys), ', '.join(keys))
            )
        if equals and key in given:
            raise errors.ConfigError('%s: %s has the key %s twice' % (SETTING, name, key))
        if not equals and last == SOURCE:
            given[SOURCE] += ',' + part
        elif not equals:
            raise errors.ConfigError(
                '%s: %s: expected key=value, got %r; its keys are %s'
                % (SETTING, name, part.strip(), ', '.join(keys))
            )
        else:
            given[key], last = value, key
    return given


def _parse_value(name, key, written, declared):
    """Returns a value as a Range or a text.

    Raises:
      ConfigError: the value is not allowed.
    """
    if declared.kind == SOURCE:
        if not written:
            raise errors.ConfigError(
                '%s: %s needs source=FILE (audio, a manifest or a folder), or source=%s'
                % (SETTING, name, ' or source='.join(NOISES))
            )
        return written
    if declared.kind == CHOICE:
        if written not in declared.choices:
            raise errors.ConfigError(
                '%s: %s: %s must be one of %s, got %r'
                % (SETTING, name, key, ', '.join(declared.choices), written)
            )
        return written
    value = _parse_range(written, declared.kind == INTEGER)
    if value is None or not _within(value, declared):
        raise errors.ConfigError(
            '%s: %s: %s must be %s from %g to %g%s%s, got %s'
            % (
                SETTING,
                name,
                key,
                'a number'
                if key == 'p'
                else 'whole numbers'
                if declared.kind == INTEGER
                else 'numbers',
                declared.low,
                declared.high,
                ' ' + declared.unit if declared.unit else '',
                '' if key == 'p' else ', as value, value~range, from:to or from:to~range',
                written or "''",
            )
        )
    return value


def _parse_range(written, whole):
    """Returns a Range; None if the text is none, or its numbers must be whole and are not."""
    matched = _RANGE.fullmatch(written)
    if not matched:
        return None
    end, radius = float(matched[2]), float(matched[3] or 0)
    start = end if matched[1] is None else float(matched[1])
    numbers = (start, end, radius)
    if radius < 0 or not all(map(math.isfinite, numbers)):
        return None
    if whole and not all(number.is_integer() for number in numbers):
        return None
    return Range(start, end, radius)


def _within(value, declared):
    """Tells whether all that may be drawn from a Range is allowed."""
    low, high = min(value.start, value.end), max(value.start, value.end)
    slack = 1e-9 * max(1.0, abs(low), abs(high))  # 1 - 0.6 is less than 0.4
    return (
        declared.low - slack <= low - value.radius and high + value.radius <= declared.high + slack
    )


def _nearest(name, known):
    """Returns the most similar of the known names."""
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
