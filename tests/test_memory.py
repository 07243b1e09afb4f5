"""The largest batch, the estimate of its memory, and what memory is available."""

import pytest

from feeding_helpers import make_set
from helpers import load_config
from util import errors, records
from util.run import memory
from util.tf1 import tf

LENGTHS = [5, 30, 2, 9, 8]
CONFIG = {'n_input': 3, 'n_context': 2, 'n_hidden': 4, 'towers': 1}


def lengths_of(batch):
    return [example.n_steps for example in batch.examples]


@pytest.mark.parametrize(
    'order, size, expected',
    [
        ('sorted', 2, [30]),  # [2, 5], [8, 9], [30]: 10, 18 and 30 frames
        ('sorted', 3, [9, 30]),
        ('sorted', 4, [2, 5, 8, 9]),  # 36 frames, and 30
        ('shuffled', 2, [9, 30]),
        ('bucketed', 2, [9, 30]),
        ('shuffled', 64, [2, 5, 8, 9, 30]),
    ],
)
def test_the_largest_batch_counts_the_padding(order, size, expected):
    data_set = make_set(LENGTHS, batch_size=size, batch_order=order)
    assert lengths_of(memory.largest_batch(data_set, order)) == expected
    batches = [[LENGTHS[i] for i in step] for step in data_set.order(0)]
    frames = max(len(batch) * max(batch) for batch in batches)
    assert frames <= len(expected) * max(expected)


def batch_of(lengths, name='train'):
    return memory.largest_batch(make_set(lengths, name, batch_size=len(lengths)))


def test_the_estimate_grows_with_the_frames_and_is_smaller_without_gradients():
    config = load_config(**CONFIG)
    one = memory.step_bytes(config, batch_of([100]), 28)
    # (2.5*15 inputs + 4 + 4 + 8 + 4 units + 26*4 cells + 14*28 classes) * 4 bytes * 100 steps
    assert one == pytest.approx(400 * (37.5 + 20 + 104 + 392))
    assert memory.step_bytes(config, batch_of([30, 100]), 28) == pytest.approx(2 * one)
    assert memory.step_bytes(config, batch_of([100], 'dev'), 28) < one


@pytest.mark.parametrize(
    'needed, available, towers, expected',
    [
        (10e9, 5e9, 1, 'ds_train_batch_size is 8, and 3 may fit'),
        (10e9, 5e9, 2, 'ds_train_batch_size is 8, and 1 may fit'),
        (10e9, 20e9, 1, 'ds_train_batch_size is 8, and 6 may fit'),  # less than what was tried
        (10e9, 1e9, 1, 'but not even 1 is likely to fit'),
    ],
)
def test_the_message_suggests_a_batch_size(needed, available, towers, expected):
    config = load_config(train_batch_size=8, **{**CONFIG, 'towers': towers})
    message = memory._message(config, batch_of(list(range(11, 19))), needed, available)
    assert expected in message
    assert 'train batch: 8 utterances of up to 18 time steps (the longest is u7, 0.2 s)' in message


@pytest.mark.parametrize(
    'error', [MemoryError('here'), tf.errors.ResourceExhaustedError(None, None, 'here\nNode')]
)
def test_a_shortage_names_the_longest_utterance_of_the_step(error):
    step = records.Step(3, batch_of([7, 5]).examples)
    with (
        pytest.raises(
            errors.MemoryShortage,
            match=r'batch of 2 utterances of up to 7 .* u0, .* ds_dev_batch_size may help: here$',
        ),
        memory.shortage_named('dev', step),
    ):
        raise error


# The available memory


def write(folder, **values):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace('_', '.', 1)).write_text('%s\n' % value)


def test_the_control_groups_of_version_2_and_those_above_them(tmp_path):
    group = tmp_path / 'a' / 'b'
    write(group, memory_max='max', memory_current=7, memory_stat='anon 4\ninactive_file 2')
    write(tmp_path / 'a', memory_max=100, memory_current=30, memory_stat='inactive_file 9')
    (tmp_path / 'groups').write_text('0::/a/b\n')
    left = memory._of_control_groups(str(tmp_path), str(tmp_path / 'groups'))
    assert list(left) == [100 - 30 + 9]


def test_the_control_groups_of_version_1(tmp_path):
    write(
        tmp_path / 'memory' / 'x',
        memory_limit_in_bytes=50,
        memory_usage_in_bytes=20,
        memory_stat='total_inactive_file 1',
    )
    (tmp_path / 'groups').write_text('5:cpu:/y\n4:memory:/x\n')
    left = memory._of_control_groups(str(tmp_path), str(tmp_path / 'groups'))
    assert list(left) == [50 - 20 + 1]


def test_without_control_groups_nothing_is_known_of_them(tmp_path):
    assert list(memory._of_control_groups(str(tmp_path), str(tmp_path / 'none'))) == []


def test_some_memory_is_available_here():
    assert (
        2**20
        < memory.available_bytes()
        <= 1024
        * int(
            next(line for line in open('/proc/meminfo') if line.startswith('MemTotal')).split()[1]
        )
    )
