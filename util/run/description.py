"""The description of a model: every checkpoint and every exported model holds one.

It is a dict that JSON can hold, with the keys of `describe`, and tells which features and which
alphabet the weights were trained with; the shapes of the weights do not tell that.
"""

import datetime
import json
from typing import Any

import util
from util import config as settings, text
from util.run import reports, run_folder

# The settings that weights depend on: with other values these weights recognise nothing
FEATURES = (
    'sample_rate',
    'n_input',
    'n_context',
    'feature_stride',
    'feature_norm',
    'dynamic_range',
)
# of models whose version did not have the setting yet
BEFORE = {'feature_norm': 'utterance', 'dynamic_range': 0.0}
NETWORK = ('rnn', 'n_hidden_1', 'n_hidden_2', 'n_hidden_5', 'n_cell_dim', 'relu_clip', 'layer_norm')
SHOWN_LABELS = 40  # largest number of characters of an alphabet in a message

Description = dict[str, Any]


def describe(config: settings.Config, alphabet: text.Alphabet) -> Description:
    """Describes the models that a run with these settings trains.

    Returns:
      {'version', 'corpus': text; 'git_hash': text or None; 'created': the present time, ISO 8601;
      'alphabet': list of characters, the blank comes after them; 'features', 'network': {name of
      a setting, without ds_: value}; 'beam_width': int}.
    """
    return {
        'version': util.__version__,
        'git_hash': run_folder.git_revision()[0],
        'created': datetime.datetime.now(datetime.timezone.utc).isoformat(),
        'corpus': config.importer,
        'alphabet': list(alphabet.labels),
        'features': {name: getattr(config, name) for name in FEATURES},
        'network': {name: getattr(config, name) for name in NETWORK},
        'beam_width': config.beam_width,
    }


def to_json(description: Description) -> str:
    """Returns a description as JSON of one line, the form in which checkpoints hold it."""
    return json.dumps(description)


def from_json(content: str | bytes) -> Description | None:
    """Returns the description that `to_json` wrote; None if the content is damaged."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):  # ValueError: also if the bytes are not UTF-8
        return None
    if not isinstance(found, dict):
        return None
    labels = found.get('alphabet')
    is_whole = (
        isinstance(labels, list)
        and all(isinstance(label, str) for label in labels)
        and all(isinstance(found.get(part), dict) for part in ('features', 'network'))
    )
    return found if is_whole else None


def of_tested(
    config: settings.Config, alphabet: text.Alphabet, weights: str, outcome: reports.Outcome | None
) -> Description:
    """Describes a model that was tested.

    Args:
      weights: what was tested, in words.
      outcome: of the test; None: there was no test.
    Returns:
      As `describe`, with 'weights' and 'test': {'loss', 'wer', 'cer'} or None.
    """
    test = None
    if outcome and outcome.rates:
        test = {'loss': outcome.loss, 'wer': outcome.rates.wer, 'cer': outcome.rates.cer}
    return {**describe(config, alphabet), 'weights': weights, 'test': test}


def feature_differences(there: Description, here: Description) -> list[str]:
    """Lists the settings of the features in which two models differ, in words with both values.

    A setting that the description of one model lacks, as a version without it wrote that, has the
    value of BEFORE, or does not count if it has none.
    """
    others = {**BEFORE, **there['features']}
    return [
        'ds_%s is %s there and %s here' % (name, others[name], value)
        for name, value in {**BEFORE, **here['features']}.items()
        if name in others and others[name] != value
    ]


def alphabet_difference(there: Description, here: Description) -> str | None:
    """Returns how the alphabets of two models differ, in words; None if they have the same
    characters in the same order."""
    old, new = there['alphabet'], here['alphabet']
    if old == new:
        return None
    first = 0  # label at which the message begins, so that it shows a difference
    if max(len(old), len(new)) > SHOWN_LABELS:
        same = [a == b for a, b in zip(old, new)]
        first = same.index(False) if False in same else len(same)
    return 'the alphabet (ds_alphabet) %sis %r there and %r here' % (
        'from label %d on ' % first if first else '',
        *[''.join(labels[first : first + SHOWN_LABELS]) for labels in (old, new)],
    )


def labels_kept(there: Description | None, here: Description | None) -> int | None:
    """Returns how many labels of the output layer of one model have the same meaning in another.

    Returns:
      None if the alphabets are the same, or one is unknown; the number of labels of the old
      alphabet, without the blank, if the new one begins with it; otherwise 0.
    """
    if there is None or here is None or there['alphabet'] == here['alphabet']:
        return None
    n_labels = len(there['alphabet'])
    return n_labels if here['alphabet'][:n_labels] == there['alphabet'] else 0


def settings_of(description: Description) -> dict[str, str]:
    """Returns the settings, {ds_ name: value}, that build the network of a model and its
    features."""
    return {
        'ds_' + name: str(value)
        for part in ('features', 'network')
        for name, value in description[part].items()
    }
