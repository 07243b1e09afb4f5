"""The exported model of a run: signatures, decoding, versions."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import DeepSpeech
from helpers import load_config
from runs import run_deepspeech
from util import audio, text
from util.tf1 import tf

LOAD = """
import sys, numpy as np, tensorflow as tf
path, features = sys.argv[1], np.load(sys.argv[2])
model = tf.saved_model.load(path)
whole = model.signatures['serving_default'](input=tf.constant(features[:1]))['outputs']
lengths = tf.constant([features.shape[1], 40, 70], tf.int32)
padded = model.signatures['with_length'](input=tf.constant(features), input_length=lengths)
single = model.signatures['serving_default'](input=tf.constant(features[1:2, :40]))
np.savez(sys.argv[3], whole=whole, padded=padded['outputs'], single=single['outputs'])
"""


@pytest.mark.run
def test_export_decodes_as_the_report_did(finished, tmp_path):
    folder, run = finished
    wav = str(folder / 'wav' / 'good7.wav')  # "fine weather"
    features = audio.audiofile_to_input_vector(wav, 26, 9)
    np.save(tmp_path / 'in.npy', np.stack([features, features[::-1], features * 0.5]))
    done = subprocess.run(
        [
            sys.executable,
            '-c',
            LOAD,
            str(folder / 'export' / '1'),
            str(tmp_path / 'in.npy'),
            str(tmp_path / 'out.npz'),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    out = np.load(tmp_path / 'out.npz')
    report = run.stdout.split('Testing the weights')[1]
    result = re.search(r'source: "fine weather"\n +result: "(.*)"', report).group(1)
    assert out['whole'].dtype == np.int64 and out['whole'].shape[:2] == (1, 1)
    assert text.Alphabet().decode(out['whole'][0, 0]) == result
    row = out['padded'][0, 1]
    np.testing.assert_array_equal(row[row >= 0], out['single'][0, 0])
    assert set(out['padded'].flatten()) <= set(range(-1, 28))


@pytest.mark.run
def test_export_has_no_random_operation_and_no_queue(finished):
    with tf.Graph().as_default(), tf.Session() as session:
        meta = tf.saved_model.load(session, ['serve'], str(finished[0] / 'export' / '1'))
        operations = {node.op for node in meta.graph_def.node}
        for function in meta.graph_def.library.function:
            operations |= {node.op for node in function.node_def}
    assert set(meta.signature_def) >= {'serving_default', 'with_length'}
    default = meta.signature_def['serving_default']
    assert default.method_name == 'tensorflow/serving/predict'
    assert [d.size for d in default.inputs['input'].tensor_shape.dim] == [-1, -1, 494]
    assert 'input_length' in meta.signature_def['with_length'].inputs
    assert not {op for op in operations if 'Random' in op or 'Queue' in op}


@pytest.mark.run
def test_versions_are_counted_up_and_removed_only_on_demand(resumable):
    run = run_deepspeech(resumable, restore_checkpoint=1, epochs=0, export_dir='export')
    assert run.returncode == 0, run.stdout
    assert sorted(os.listdir(resumable / 'export')) == ['1', '2']
    run_deepspeech(resumable, restore_checkpoint=1, epochs=0, export_dir='export', remove_export=1)
    assert os.listdir(resumable / 'export') == ['3']


def test_interrupted_export_leaves_no_version(tmp_path, monkeypatch):
    config = load_config(n_input=4, n_context=1, n_hidden=6, export_dir=tmp_path)

    def fail(self, *arguments, **options):
        raise RuntimeError('disk full')

    monkeypatch.setattr(tf.saved_model.Builder, 'save', fail)
    with tf.Graph().as_default():
        DeepSpeech.BiRNN(tf.zeros([3, 11, 12]), [11, 7, 2], config=config, n_character=7)
        weights = {v.op.name: np.zeros(v.shape, np.float32) for v in tf.global_variables()}
    with pytest.raises(RuntimeError, match='disk full'):
        DeepSpeech.export(config, text.Alphabet(' abcde'), weights)
    assert os.listdir(tmp_path) == []


@pytest.mark.run
def test_a_corpus_in_the_export_folder_survives_ds_remove_export(resumable):
    (resumable / 'export' / '84' / '121123').mkdir(parents=True)
    (resumable / 'export' / '84' / '121123' / '84-121123-0000.txt').write_text('GO')
    (resumable / 'export' / '7').write_text('a plain file')
    run = run_deepspeech(
        resumable, restore_checkpoint=1, epochs=0, export_dir='export', remove_export=1
    )
    assert run.returncode == 0 and 'Export: export/85' in run.stdout, run.stdout
    assert sorted(os.listdir(resumable / 'export')) == ['7', '84', '85']
    assert (resumable / 'export' / '84' / '121123' / '84-121123-0000.txt').read_text() == 'GO'
