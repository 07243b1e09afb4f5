"""The options of the command lines that decode with a language model, a lexicon or a grammar."""

import argparse
import math
import shlex
from typing import TYPE_CHECKING, Any

from util import config as settings

if TYPE_CHECKING:
    from util.language.decoder import LanguageSettings

# {name of the option's value: name of the field of LanguageSettings}
FIELDS = {
    'lm': 'lm',
    'lm_alpha': 'alpha',
    'lm_beta': 'beta',
    'lexicon': 'lexicon',
    'grammar': 'grammar',
    'lm_unknown': 'unknown',
    'lm_beam_width': 'beam_width',
}
# {name of the field: name of the setting that it stands for}, without the weights
SETTINGS = {
    'lm': 'ds_lm',
    'lexicon': 'ds_lm_lexicon',
    'grammar': 'ds_lm_grammar',
    'unknown': 'ds_lm_unknown',
    'beam_width': 'ds_lm_beam_width',
}


def add_to(parser: argparse.ArgumentParser, weights: bool = True) -> None:
    """Adds the options to a parser.

    Args:
      parser: argparse.ArgumentParser.
      weights: whether to add those of the weights alpha and beta, too.
    """
    group = parser.add_argument_group('language model')
    group.add_argument(
        '--lm',
        metavar='FILE',
        help='language model: an ARPA file, also gzipped, or a binary of KenLM',
    )
    if weights:
        _add_weights(group)
    group.add_argument(
        '--lexicon',
        metavar='FILE',
        help='words that may be recognised, one a line (default: those of an ARPA file)',
    )
    group.add_argument(
        '--grammar', metavar='FILE', help='grammar of the sentences that may be recognised'
    )
    group.add_argument(
        '--lm-unknown',
        metavar='HOW',
        help='words outside the lexicon: never, spell for any, or the number that each of them '
        'adds to the score, such as -5 (default: %s)' % settings.LM_UNKNOWN_NEVER,
    )
    group.add_argument(
        '--lm-beam-width',
        metavar='N',
        type=positive,
        help='paths of the search with these (default: 100)',
    )


def _add_weights(group):
    """Adds the options of the weights to a group."""
    group.add_argument(
        '--lm-alpha',
        metavar='NUMBER',
        type=not_negative,
        help='weight of the language model (default: %g)' % settings.LM_ALPHA,
    )
    group.add_argument(
        '--lm-beta',
        metavar='NUMBER',
        type=finite,
        help='what each word adds to the score (default: %g with --lm, else 0)' % settings.LM_BETA,
    )


def finite(value: str) -> float:
    """Returns an option as a finite number.

    Raises:
      ValueError: it is not.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


finite.__name__ = 'number'  # for argparse's message


def not_negative(value: str) -> float:
    """Returns an option as a finite number of at least 0.

    Raises:
      ValueError: it is not.
    """
    number = finite(value)
    if number < 0:
        raise ValueError
    return number


not_negative.__name__ = 'number of at least 0'


def positive(value: str) -> int:
    """Returns an option as a number of at least 1.

    Raises:
      ValueError: it is not.
    """
    number = int(value)
    if number < 1:
        raise ValueError
    return number


positive.__name__ = 'number of at least 1'  # for argparse's message


def given(options: argparse.Namespace) -> dict[str, Any]:
    """Returns {field of LanguageSettings: value} of the options that the command line has."""
    values = {field: getattr(options, name, None) for name, field in FIELDS.items()}
    return {field: value for field, value in values.items() if value is not None}


def settings_of(options: argparse.Namespace) -> 'LanguageSettings | None':
    """Returns the LanguageSettings of a command line; None if it names neither a language model nor
    a lexicon nor a grammar.

    Raises:
      ConfigError: an option has no use without one of these.
    """
    from util import errors
    from util.language import decoder  # here, as --help can do without

    values = given(options)
    if not values.keys() & {'lm', 'lexicon', 'grammar'}:
        if values:
            name = next(name for name, field in FIELDS.items() if field in values)
            raise errors.ConfigError(
                '--%s has no use without --lm, --lexicon or --grammar' % name.replace('_', '-')
            )
        return None
    return decoder.LanguageSettings(**values)


def command(wanted: 'LanguageSettings') -> str:
    """Returns LanguageSettings as ds_NAME=VALUE with spaces between, to be copied; without weights
    and without what is as it is by default."""
    values, default = wanted._asdict(), type(wanted)()._asdict()
    return ' '.join(
        '%s=%s' % (name, shlex.quote(str(values[field])))
        for field, name in SETTINGS.items()
        if values[field] != default[field]
    )
