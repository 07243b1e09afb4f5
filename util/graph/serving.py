"""What an exported model does before and after the network: audio to features, labels to text.

The features are those of util/audio.py, computed by TensorFlow's operations: in float64 until they
are normalised, and for each utterance of a padded batch as it would be alone. What a request must
not hold ends in an error that says so, never in text.

B = batch_size, N = samples of the longest utterance, T = its time steps, C = n_context in comments
on shapes.
"""

import math

import numpy as np
import scipy.fft
from python_speech_features import base

from util import audio, records
from util.tf1 import tf

BLOCK = 1 << 14  # samples that are resampled at once, so that memory is bounded
HALF_LENGTH = 10  # of the resampling filter, in periods of the lower rate (scipy.signal)
KAISER_BETA = 5.0  # of the resampling filter's window (scipy.signal)
SHOWN_VALUES = 8  # of a tensor in an error
MAX_DECODED = 4  # files of a batch that are decoded and resampled at a time


# Checks


def check(tensor, *conditions):
    """Returns the tensor, behind conditions; the first that is false fails the request with its
    words.

    Args:
      tensor: any tensor.
      conditions: (bool scalar, words, tensor to show) each.
    """
    asserts = []
    for fine, words, shown in conditions:
        with tf.control_dependencies(asserts[-1:]):  # in order
            asserts.append(tf.debugging.Assert(fine, [words, shown], SHOWN_VALUES))
    with tf.control_dependencies(asserts[-1:]):
        return tf.identity(tensor)


def of_declared_shape(placeholder):
    """Checks that what is fed has the placeholder's rank and sizes, which a server does not do.

    Returns:
      The tensor, with the declared shape.
    """
    declared = placeholder.shape.as_list()
    # the raw operations look at what was fed; tf.shape and tf.rank believe the declaration
    shape = tf.raw_ops.Shape(input=placeholder)
    sizes = tf.concat([shape, tf.zeros([len(declared)], tf.int32)], 0)[: len(declared)]
    wanted = [tf.equal(sizes[i], size) for i, size in enumerate(declared) if size is not None]
    fits = tf.reduce_all([tf.equal(tf.raw_ops.Rank(input=placeholder), len(declared)), *wanted])
    name = placeholder.op.name.rpartition('/')[2]
    words = '%s must have the shape %s; it has' % (name, placeholder.shape)
    return tf.ensure_shape(check(placeholder, (fits, words, shape)), declared)


def checked_features(windows, seq_len):
    """Checks what a request gives as features.

    Args:
      windows: float32 [B, T, F].
      seq_len: int32 [B], time steps.
    Returns:
      (windows, seq_len).
    """
    shape = tf.shape(windows)
    one_each = tf.equal(tf.size(seq_len), shape[0])
    within = (tf.reduce_min(seq_len) >= 1) & (tf.reduce_max(seq_len) <= shape[1])
    finite = tf.reduce_all(tf.math.is_finite(windows))
    conditions = (
        (tf.size(windows) > 0, 'input must hold at least one step; its shape is', shape),
        (one_each, 'input_length must have a length for each utterance; it is', seq_len),
        (within, 'input_length must be from 1 to the steps of input; it is', seq_len),
        (finite, 'input must hold finite numbers only; its shape is', shape),
    )
    return check(windows, *conditions), check(seq_len, *conditions)


def checked_samples(samples, lengths, sample_rate):
    """Checks samples, padded by the sender or decoded from files.

    Args:
      samples: float [B, N], full scale is 1.
      lengths: int32 [B], samples of each utterance.
      sample_rate: Hz.
    Returns:
      (samples, lengths).
    """
    window, _ = audio.window_and_step(sample_rate)
    shape = tf.shape(samples)
    one_each = tf.equal(tf.size(lengths), shape[0])
    finite = tf.reduce_all(tf.abs(samples) < audio.LOUDEST)  # false for NaN as well
    too_short = 'an utterance must have %d samples or more at %d Hz, one window; they have'
    conditions = (
        (shape[0] > 0, 'samples must hold one utterance or more; their shape is', shape),
        (one_each, 'sample_length must have a length for each utterance; it is', lengths),
        (tf.reduce_min(lengths) >= window, too_short % (window, sample_rate), lengths),
        (tf.reduce_max(lengths) <= shape[1], 'sample_length is larger than samples has', lengths),
        (finite, 'samples must be finite numbers in -1..1; their shape is', shape),
    )
    return check(samples, *conditions), check(lengths, *conditions)


# From files to samples


def decode_wavs(contents, sample_rate):
    """Decodes WAV files.

    Args:
      contents: string [B], whole files of 16-bit PCM, of any rate and number of channels.
      sample_rate: Hz, the rate to which they are brought.
    Returns:
      (float64 [B, N], the mean of the channels, full scale is 1, padded with 0; int32 [B], samples
      of each; float32 [B], seconds of each file).
    """
    low, high = audio.SOURCE_RATES

    @tf.autograph.experimental.do_not_convert  # it is graph code already
    def decode(content):
        samples, rate = tf.audio.decode_wav(content)  # float32 [n, channels]
        rate = check(
            rate,
            (
                tf.logical_and(rate >= low, rate <= high),
                'the sample rate must be from %d to %d Hz, it is' % (low, high),
                rate,
            ),
        )
        mono = tf.reduce_mean(tf.cast(samples, tf.float64), axis=1)
        seconds = tf.cast(tf.size(mono), tf.float32) / tf.cast(rate, tf.float32)
        return resample(mono, rate, sample_rate), seconds

    contents = check(
        contents, (tf.size(contents) > 0, 'audio_bytes must hold one file or more', contents)
    )
    samples, seconds = tf.map_fn(
        decode,
        contents,
        fn_output_signature=(tf.RaggedTensorSpec([None], tf.float64), tf.float32),
        parallel_iterations=MAX_DECODED,
    )
    return samples.to_tensor(), tf.cast(samples.row_lengths(), tf.int32), seconds


def resample(samples, rate, sample_rate):
    """Brings samples to another rate by the polyphase filter of scipy.signal.resample_poly.

    Args:
      samples: float64 [n].
      rate: int32 scalar, Hz.
      sample_rate: Hz.
    Returns:
      float64 [ceil(n * sample_rate / rate)].
    """
    return tf.cond(
        tf.equal(rate, sample_rate),
        lambda: samples,
        lambda: _resample(samples, tf.cast(rate, tf.int64), tf.constant(sample_rate, tf.int64)),
    )


def _resample(samples, rate, sample_rate):
    """Does the same for rates that differ, int64 scalars.

    Output k is the sum over n of x[n] h[k down - n up], with h = 0 beyond +-half. Of k down only
    the remainder by up, the phase, decides which values of h are needed, so that these are
    computed once for each phase: [up, taps].
    """
    _, divisor = tf.while_loop(  # Euclid's algorithm
        lambda a, b: a > 0, lambda a, b: (tf.math.floormod(b, a), a), (rate, sample_rate)
    )
    up, down = sample_rate // divisor, rate // divisor
    half = HALF_LENGTH * tf.maximum(up, down)
    taps = 2 * half // up + 1
    scale = tf.cast(up, tf.float64) / tf.reduce_sum(_lowpass(tf.range(-half, half + 1), half))
    phases = tf.range(up)
    first = -((half - phases) // up)  # the first n that counts, from k down // up on
    taps_range = tf.range(taps)
    table = scale * _lowpass(phases[:, None] - (first[:, None] + taps_range) * up, half)

    n_out = -(-tf.size(samples, out_type=tf.int64) * up // down)
    margin = taps + 1
    padded = tf.pad(samples, [[margin, margin]])

    @tf.autograph.experimental.do_not_convert
    def block(start):
        position = (start + tf.range(BLOCK, dtype=tf.int64)) * down
        phase = tf.math.floormod(position, up)
        n = (position // up + tf.gather(first, phase))[:, None] + taps_range
        n = tf.minimum(n + margin, tf.size(padded, out_type=tf.int64) - 1)  # what is behind is 0
        return tf.reduce_sum(tf.gather(padded, n) * tf.gather(table, phase), axis=1)

    starts = tf.range(0, n_out, BLOCK, dtype=tf.int64)
    blocks = tf.map_fn(block, starts, fn_output_signature=tf.float64, parallel_iterations=1)
    return tf.reshape(blocks, [-1])[:n_out]


def _lowpass(i, half):
    """Values of the low-pass filter at int64 positions of any shape, but for a factor: a sinc of
    the lower rate under a Kaiser window of +-half, 0 beyond."""
    i, half = tf.cast(i, tf.float64), tf.cast(half, tf.float64)
    x = math.pi * HALF_LENGTH * i / half
    sinc = tf.where(tf.equal(i, 0), tf.ones_like(x), tf.sin(x) / tf.where(tf.equal(i, 0), 1 + x, x))
    inside = tf.maximum(1 - (i / half) ** 2, 0.0)
    window = tf.math.bessel_i0(KAISER_BETA * tf.sqrt(inside))
    return tf.where(tf.abs(i) <= half, sinc * window, tf.zeros_like(x))


# From samples to features


def features(samples, lengths, config):
    """Computes normalised MFCC with the margins of the context windows.

    Args:
      samples: float [B, N], full scale is 1.
      lengths: int32 [B], samples of each utterance.
      config: Config; its sample_rate, n_input, n_context, feature_stride, feature_norm and
        dynamic_range.
    Returns:
      records.Batch with features float32 [B, C + T + C, n_input] and seq_len int32 [B].
    """
    window, step = audio.window_and_step(config.sample_rate)
    n_frames = 1 + tf.maximum(0, -((window - lengths) // step))
    n_steps = -(-n_frames // config.feature_stride)
    frames = _frames(samples, lengths, n_frames, window, step, config.feature_stride)
    coefficients = _mfcc(frames, window, n_steps, config)
    by_coefficient = config.feature_norm == 'coefficient'
    normalised = _normalised_coefficients if by_coefficient else _normalised
    return records.Batch(normalised(coefficients, n_steps, config), n_steps, None, None)


def _frames(samples, lengths, n_frames, window, step, stride):
    """Cuts emphasised frames, float64 [B, T, window]; the last one of an utterance is zero-padded.

    Args:
      samples: float [B, N], full scale is 1.
      lengths, n_frames: int32 [B].
    """
    samples = tf.cast(samples, tf.float64) * audio.INT16_SCALE
    emphasised = tf.concat(
        [samples[:, :1], samples[:, 1:] - audio.PREEMPHASIS * samples[:, :-1]], axis=1
    )
    inside = tf.sequence_mask(lengths, tf.shape(samples)[1], tf.float64)
    # what is masked may be a neighbour's padding of any value but NaN
    emphasised = tf.where(inside > 0, emphasised, tf.zeros_like(emphasised))
    needed = (tf.reduce_max(n_frames) - 1) * step + window
    missing = tf.maximum(0, needed - tf.shape(samples)[1])
    padded = tf.pad(emphasised, [[0, 0], [0, missing]])[:, :needed]
    return tf.signal.frame(padded, window, step * stride)


def _mfcc(frames, window, n_steps, config):
    """Computes MFCC: float64 [B, T, window] -> [B, T, n_input]; see audio.mfcc.

    Args:
      n_steps: int32 [B]; later steps hold zeros.
    """
    n_fft = audio.fft_points(window)
    spectrum = tf.signal.rfft(frames, [n_fft])
    power = (tf.math.real(spectrum) ** 2 + tf.math.imag(spectrum) ** 2) / n_fft
    filters = audio.filterbank(n_fft, config.sample_rate).toarray().T  # [n_fft/2 + 1, N_FILTERS]
    cosines = scipy.fft.dct(np.eye(audio.N_FILTERS), norm='ortho')[:, : config.n_input]
    lifter = base.lifter(np.ones([1, config.n_input]), audio.LIFTER)
    energies = _log(tf.tensordot(power, filters, 1))
    energy = _log(tf.reduce_sum(power, axis=2, keepdims=True))
    if config.dynamic_range:
        inside = tf.sequence_mask(n_steps, tf.shape(frames)[1])[:, :, None]
        energies, energy = [
            _limited(each, inside, config.dynamic_range) for each in (energies, energy)
        ]
    cepstrum = tf.tensordot(energies, cosines * lifter, 1)
    return tf.concat([energy, cepstrum[:, :, 1:]], axis=2)


def _limited(log_energies, inside, decibels):
    """Raises low energies, float64 [B, T, n]; see audio.limit_range.

    Args:
      inside: bool [B, T, 1], whether a time step belongs to its utterance.
    """
    masked = tf.where(
        tf.broadcast_to(inside, tf.shape(log_energies)),
        log_energies,
        tf.fill(tf.shape(log_energies), tf.constant(-math.inf, tf.float64)),
    )
    highest = tf.reduce_max(masked, axis=[1, 2], keepdims=True)
    return tf.maximum(log_energies, highest - decibels * audio.NEPERS_PER_DB)


def _log(power):
    """Natural logarithm, in which zeros are replaced by the machine epsilon."""
    epsilon = tf.constant(np.finfo(float).eps, tf.float64)
    return tf.math.log(tf.where(tf.equal(power, 0), epsilon * tf.ones_like(power), power))


def _normalised(coefficients, n_steps, config):
    """Applies per-utterance normalisation; see audio.normalise.

    Args:
      coefficients: float64 [B, T, n_input].
      n_steps: int32 [B]; later steps are left out of account.
    Returns:
      float32 [B, C + T + C, n_input].
    """
    context, longest = config.n_context, tf.shape(coefficients)[1]
    inside = tf.sequence_mask(n_steps, longest)[:, :, None]
    kept = tf.where(
        tf.broadcast_to(inside, tf.shape(coefficients)), coefficients, tf.zeros_like(coefficients)
    )
    padded = tf.pad(kept, [[0, 0], [context, context], [0, 0]])
    rows = tf.range(longest + 2 * context)
    uses = tf.minimum(rows, n_steps[:, None] - 1) - tf.maximum(rows - 2 * context, 0) + 1
    uses = tf.cast(tf.maximum(uses, 0), tf.float64)[:, :, None]  # [B, C + T + C, 1]
    n_values = tf.cast(n_steps * (2 * context + 1) * config.n_input, tf.float64)[:, None, None]
    mean = tf.reduce_sum(padded * uses, [1, 2], keepdims=True) / n_values
    variance = tf.reduce_sum((padded - mean) ** 2 * uses, [1, 2], keepdims=True) / n_values
    deviation = tf.sqrt(variance)
    deviation = tf.where(tf.equal(deviation, 0), tf.ones_like(deviation), deviation)
    return tf.cast((padded - mean) / deviation, tf.float32)


def _normalised_coefficients(coefficients, n_steps, config):
    """Normalises each coefficient; see audio.normalise_coefficients. Arguments and result are those
    of `_normalised`."""
    inside = tf.sequence_mask(n_steps, tf.shape(coefficients)[1], tf.float64)[:, :, None]
    count = tf.cast(n_steps, tf.float64)[:, None, None]
    kept = tf.where(
        tf.broadcast_to(inside > 0, tf.shape(coefficients)),
        coefficients,
        tf.zeros_like(coefficients),
    )
    centred = (kept - tf.reduce_sum(kept, 1, keepdims=True) / count) * inside
    deviation = tf.sqrt(tf.reduce_sum(centred**2, 1, keepdims=True) / count)
    constant = deviation < audio.MIN_DEVIATION
    varying = tf.cast(~constant, tf.float64)
    normal = centred * varying / tf.where(constant, tf.ones_like(deviation), deviation)
    margins = [config.n_context] * 2
    return tf.cast(tf.pad(normal, [[0, 0], margins, [0, 0]]), tf.float32)


# From labels to text


def texts(labels, alphabet):
    """Makes texts of labels.

    Args:
      labels: int64 [B, n], padded with -1.
      alphabet: text.Alphabet.
    Returns:
      string [B], in UTF-8.
    """
    characters = tf.constant([*alphabet.labels, ''])
    nothing = tf.fill(tf.shape(labels), tf.constant(alphabet.blank, labels.dtype))
    index = tf.where(labels < 0, nothing, labels)
    return tf.strings.reduce_join(tf.gather(characters, index), axis=1)


# Signatures: {name: ({name of an input: placeholder}, {name of an output: tensor})}


def features_signatures(config, alphabet, recognise):
    """Makes the signatures of an exported model that take features.

    Args:
      config: Config.
      alphabet: text.Alphabet.
      recognise: function of a records.Batch of windows, returns handles.Recognised.
    Returns:
      ((`input` float32 [B, T, F], `input_length` int32 [B], T by default), handles.Recognised of
      them, signatures).
    """
    inputs = tf.placeholder(tf.float32, [None, None, config.n_features], 'input')
    windows = of_declared_shape(inputs)
    whole = tf.fill([tf.shape(windows)[0]], tf.shape(windows)[1])
    length = tf.placeholder_with_default(whole, [None], 'input_length')
    windows, seq_len = checked_features(windows, of_declared_shape(length))
    found = recognise(records.Batch(windows, seq_len, None, None))
    both, notebooks = {'input': inputs, 'input_length': length}, {'outputs': found.labels[None]}
    logits = tf.transpose(found.logits, [1, 0, 2])
    return (
        (inputs, length),
        found,
        {
            tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: ({'input': inputs}, notebooks),
            'with_length': (both, notebooks),
            'features': (both, {**_transcribed(found, alphabet), 'labels': found.labels}),
            'logits': (both, {'logits': logits, 'output_length': tf.identity(seq_len)}),
        },
    )


def audio_signatures(config, alphabet, recognise):
    """Makes the signatures of an exported model that take audio: whole files, or samples.

    Args:
      config: Config.
      alphabet: text.Alphabet.
      recognise: function of a records.Batch of frames with margins, returns handles.Recognised.
    """
    rate = config.sample_rate

    def transcribed(samples, lengths):
        samples, lengths = checked_samples(samples, lengths, rate)
        return _transcribed(recognise(features(samples, lengths, config)), alphabet)

    with tf.name_scope('audio'):
        contents = tf.placeholder(tf.string, [None], 'audio_bytes')
        decoded, n_decoded, seconds = decode_wavs(of_declared_shape(contents), rate)
        of_files = {**transcribed(decoded, n_decoded), 'seconds': seconds}
    with tf.name_scope('waveform'):
        samples = tf.placeholder(tf.float32, [None, None], 'samples')
        lengths = tf.placeholder(tf.int32, [None], 'sample_length')
        given = of_declared_shape(samples), of_declared_shape(lengths)
        seconds = tf.cast(given[1], tf.float32) / rate
        found = transcribed(*given)
        with tf.control_dependencies([found['transcripts']]):  # so that it fails where they do
            of_samples = {**found, 'seconds': tf.identity(seconds)}
    return {
        'audio': ({'audio_bytes': contents}, of_files),
        'waveform': ({'samples': samples, 'sample_length': lengths}, of_samples),
    }


def _transcribed(found, alphabet):
    return {
        'transcripts': texts(found.labels, alphabet),
        'log_probabilities': found.log_probabilities,
    }
