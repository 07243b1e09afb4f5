"""The report on a corpus, as a command of its own."""
import os
import subprocess
import sys

from helpers import PROJECT, make_corpus, speech, write_manifest, write_wav


def check(folder, *arguments, **values):
    environment = {k: v for k, v in os.environ.items() if not k.startswith('ds_')}
    settings = dict(importer='csv', train_files='train.csv', dev_files='dev.csv',
                    test_files='test.csv', cache_dir='cache', **values)
    environment.update({'ds_' + k: v for k, v in settings.items()}, PYTHONPATH=PROJECT)
    return subprocess.run([sys.executable, '-m', 'util.tools.check_data', *arguments], cwd=folder,
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)


def test_report_of_a_corpus_with_faults(tmp_path):
    make_corpus(tmp_path)
    write_wav(tmp_path / 'wav/r8.wav', speech(1.5, rate=8000), 8000)
    (tmp_path / 'wav/page.wav').write_text('<html>')
    with open(tmp_path / 'train.csv', 'a') as manifest:
        manifest.write('wav/r8.wav,0,last one\nwav/page.wav,0,hello\nwav/r8.wav,0,room 42 4\n')
    done = check(tmp_path, 'lengths.png')
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    # 1.2, 1.3, 1.4, 1.5, 1.2 and the added 1.5 s
    assert lines[0] == ('train 6 utterances, 8.1 s (0.00 hours); shortest 1.20 s, median 1.35 s, '
                        'longest 1.50 s')
    # of 6 times 150 (or 149) frames; lengths 120, 130, 140, 150, 120, 150 in one batch
    assert lines[1].strip() == '10.1 % of the frames in batches of 64 are padding'
    assert lines[2].strip() == ('15 words; 1 at 8000 Hz with 1 channel, '
                                '5 at 16000 Hz with 1 channel')
    assert 'excluded: 2 utterances' in lines
    assert '      1 not an audio file' in lines
    assert "      2 '4' (U+0034), as in wav/r8.wav: room 42 4" in lines
    assert "      1 '2' (U+0032), as in wav/r8.wav: room 42 4" in lines
    assert 'test utterances whose transcript also occurs in training: 1 of 2' in lines
    assert lines[-1] == 'training could start'
    with open(tmp_path / 'lengths.png', 'rb') as picture:
        assert picture.read(4) == b'\x89PNG'


def test_status_says_that_training_could_not_start(tmp_path):
    make_corpus(tmp_path)
    write_manifest(tmp_path / 'train.csv', [('wav/good0.wav', '')])
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith('training could not start')


def test_wrong_setting_is_one_line(tmp_path):
    make_corpus(tmp_path)
    done = check(tmp_path, limit_dev='x')
    assert done.returncode == 1
    assert done.stdout == "error: ds_limit_dev must be an integer of at least 0, got 'x'\n"
