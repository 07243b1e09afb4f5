"""Checks before the first step for problems that would otherwise end a run after hours."""

import logging

from util import config as settings, errors, files, gpu, shared_lib
from util.run import checkpoint_files

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
        files.make_dir(config.checkpoint_dir, 'ds_checkpoint_dir')
        files.make_dir(checkpoint_files.best_dir(config.checkpoint_dir), 'ds_checkpoint_dir')
        if config.average_checkpoints:
            averaged = checkpoint_files.averaged_dir(config.checkpoint_dir)
            files.make_dir(averaged, 'ds_checkpoint_dir')
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
