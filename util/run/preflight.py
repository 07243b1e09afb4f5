"""Checks before the first step for problems that would otherwise end a run after hours."""

import collections
import logging
import os
import shutil

from util import config as settings, errors, files, gpu, shared_lib
from util.run import checkpoint_files, checkpoint_io
from util.tf1 import tf

log = logging.getLogger('DeepSpeech')


def check(config, data_sets) -> None:
    """Checks that the run can do what the settings ask for, and makes its folders.

    Args:
      config: Config.
      data_sets: DataSets.
    Raises:
      ConfigError: this machine lacks a GPU that a setting needs, or a folder cannot be written.
      DataError: the training set, or a dev set that a setting needs, is empty.
    """
    if config.use_warpctc and not gpu.get_available_gpus():
        raise errors.ConfigError(
            'ds_use_warpctc must be off on a machine without GPUs: the '
            'CTCLossV2 operation runs on GPUs only'
        )
    if config.training_iters:
        folders = [config.checkpoint_dir, checkpoint_files.best_dir(config.checkpoint_dir)]
        if config.average_checkpoints:
            folders.append(checkpoint_files.averaged_dir(config.checkpoint_dir))
        for folder in folders:
            files.make_dir(folder, 'ds_checkpoint_dir')
            checkpoint_io.clean_up(folder)  # before a checkpoint is looked for
    if config.export_dir:
        files.make_dir(config.export_dir, 'ds_export_dir')
    if config.training_iters and not len(data_sets.train):
        raise errors.DataError('no usable training utterance is left')
    if config.training_iters and settings.uses_dev_loss(config) and not len(data_sets.dev):
        raise errors.DataError(
            '%s needs a dev set, but it is empty' % ', '.join(settings.uses_dev_loss(config))
        )
    for data_set, purpose in ((data_sets.dev, 'validation'), (data_sets.test, 'test')):
        if not len(data_set):
            log.info('the %s set is empty: no %s', data_set.name, purpose)
    if config.do_fulltrace:
        shared_lib.check_cupti()


def check_space(config, model) -> None:
    """Warns if there is less space on the disk than the checkpoints and the export will take.

    Args:
      config: Config.
      model: handles.Model.
    """
    needed: collections.Counter[int] = collections.Counter()  # bytes on each file system
    settings_of = collections.defaultdict(list)
    for setting, folder, size in _sizes(config, model):
        device = os.stat(folder).st_dev
        needed[device] += size
        settings_of[device].append((setting, folder))
    for device, size in needed.items():
        setting, folder = settings_of[device][0]
        free = shutil.disk_usage(folder).free
        if size > free:
            log.warning(
                '%s: the run will take about %.1f MB of the disk of %s, of which %.1f MB are free',
                ', '.join(dict.fromkeys(setting for setting, _ in settings_of[device])),
                size / 1e6,
                folder,
                free / 1e6,
            )


def _sizes(config, model):
    """Returns (setting, folder, bytes that the run will add to it) of each folder.

    A checkpoint is written before an old one is removed, so there is one more than is kept.
    """
    weights = _bytes_of(model.weights)
    checkpoint = _bytes_of(model.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES))
    savers = [
        (config.checkpoint_dir, model.savers.newest),
        (checkpoint_files.best_dir(config.checkpoint_dir), model.savers.best),
        (checkpoint_files.averaged_dir(config.checkpoint_dir), model.savers.averaged),
    ]
    found = []
    if config.training_iters:
        for folder, saver in savers:
            if saver:
                there = sum(map(checkpoint_io.size, checkpoint_files.candidates(folder)))
                size = checkpoint * (saver.saver_def.max_to_keep + 1)
                found.append(('ds_checkpoint_dir', folder, max(0, size - there)))
    if config.export_dir:
        found.append(('ds_export_dir', config.export_dir, weights))
    return found


def _bytes_of(variables):
    """Returns the size of variables in bytes."""
    return sum(v.shape.num_elements() * v.dtype.base_dtype.size for v in variables)
