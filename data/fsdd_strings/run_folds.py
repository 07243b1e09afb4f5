"""Trains and tests the recipe on six folds: each speaker once is the test, the next one validation.

    python run_folds.py STRINGS OUT [--speakers george,theo] [--also FILES] [ds_NAME=VALUE ...]

STRINGS is a folder that make_strings.py filled. "Next" is meant in alphabetical order; the first
follows the last. The other speakers train, and with them the manifests of --also, by default the
synthetic voices of data/digits; --also '' leaves them out. Settings, such as
ds_lm_lexicon=words.txt, override those of config.json. Logs and checkpoints of each fold go to
OUT/SPEAKER. At the end of each fold its error rates are printed, in percent, with and without the
language model if there is one, and the minutes of its run; then their means.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = ('test_wer', 'test_cer', 'test_wer_lm', 'test_cer_lm')  # of hyper.json
SYNTHETIC = HERE.parent / 'digits' / 'train.csv'


def main(arguments):
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument('strings', metavar='STRINGS', type=pathlib.Path, help='folder of strings')
    parser.add_argument('out', metavar='OUT', type=pathlib.Path, help='folder for the runs')
    parser.add_argument('settings', metavar='ds_NAME=VALUE', nargs='*', help='settings')
    parser.add_argument(
        '--also',
        default=str(SYNTHETIC),
        help='manifests to train on as well, with commas between (default: %(default)s)',
    )
    parser.add_argument('--speakers', help='test only these, with commas between (default: all)')
    options = parser.parse_intermixed_args(arguments)
    speakers = sorted(
        path.name.removesuffix('.train.csv') for path in options.strings.glob('*.train.csv')
    )
    tested = options.speakers.split(',') if options.speakers else speakers
    wrong = [each for each in options.settings if not each.startswith('ds_') or '=' not in each]
    if len(speakers) < 3:
        parser.error(
            '%s has manifests of %d speakers, a fold needs 3 or more'
            % (options.strings, len(speakers))
        )
    if wrong or not set(tested) <= set(speakers):
        parser.error(
            'expected ds_NAME=VALUE and speakers of %s, got %s'
            % (', '.join(speakers), wrong or tested)
        )
    rows = []
    for speaker in tested:
        settings = fold_settings(options.strings, options.out / speaker, speakers, speaker)
        if options.also:
            settings['ds_train_files'] += ',' + options.also
        settings.update(each.split('=', 1) for each in options.settings)
        rows.append((speaker, run(settings)))
        print(line(*rows[-1]), flush=True)
    for name in rows[0][1]:
        values = [figures[name] for _, figures in rows if figures[name] is not None]
        if values:
            print('mean %s %.2f' % (name, sum(values) / len(values)))
    return 0


def fold_settings(strings, out, speakers, test):
    """Returns {ds_ name: value} of the fold in which `test` is the test speaker."""
    dev = speakers[(speakers.index(test) + 1) % len(speakers)]
    train = [each for each in speakers if each not in (test, dev)]
    return {
        'ds_config': str(HERE / 'config.json'),
        'ds_train_files': ','.join('%s/%s.train.csv' % (strings, each) for each in train),
        'ds_dev_files': '%s/%s.csv' % (strings, dev),
        'ds_test_files': '%s/%s.csv' % (strings, test),
        'ds_checkpoint_dir': str(out / 'checkpoints'),
        'ds_logs_dir': str(out / 'logs'),
        'ds_export_dir': str(out / 'export'),
    }


def run(settings):
    """Runs DeepSpeech.py and returns {name: figure}, None where there is none.

    Raises:
      SystemExit: the run failed; its output was shown.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith('ds_')}
    done = subprocess.run(
        [sys.executable, str(HERE.parents[1] / 'DeepSpeech.py')], env={**kept, **settings}
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    newest = max(pathlib.Path(settings['ds_logs_dir']).glob('*/hyper.json'))
    results = json.loads(newest.read_text(encoding='utf-8'))['results']
    percent = {
        name.replace('_', ' ') + ' %': 100 * results[name]
        for name in RESULTS
        if results.get(name) is not None
    }
    return {**percent, 'minutes': results['duration'] / 60}


def line(speaker, figures):
    """Returns the line of a fold."""
    return '%s: %s' % (speaker, ', '.join('%s %.2f' % item for item in figures.items()))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
