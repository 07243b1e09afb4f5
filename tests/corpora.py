"""Files of corpora that can't be had here, written in their real form."""
import os

import numpy as np

HEADER_BYTES = 1024


def write_sphere(path, samples, rate, byte_order='01'):
    """Writes int16 samples [n] or [n, channels] as an uncompressed NIST SPHERE file.

    Args:
      byte_order: '01' little-endian, '10' big-endian, as the header says it.
    """
    samples = np.asarray(samples, np.int16)
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    fields = ['NIST_1A', '   %d' % HEADER_BYTES, 'channel_count -i %d' % channels,
              'sample_count -i %d' % len(samples), 'sample_rate -i %d' % rate,
              'sample_n_bytes -i 2', 'sample_byte_format -s2 %s' % byte_order,
              'sample_sig_bits -i 16', 'sample_coding -s3 pcm', 'end_head']
    header = ('\n'.join(fields) + '\n').encode().ljust(HEADER_BYTES, b' ')
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with open(path, 'wb') as file:
        file.write(header + samples.astype('<i2' if byte_order == '01' else '>i2').tobytes())
    return str(path)
