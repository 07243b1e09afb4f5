"""Checks for shared libraries before a run needs them."""

import ctypes
import ctypes.util
import logging

from util import gpu

log = logging.getLogger(__name__)


def check_cupti() -> bool | None:
    """Logs whether a full trace will hold the times of GPU kernels, which needs NVIDIA's CUPTI.

    Returns:
      True if CUPTI can be loaded, False if it cannot, None on a machine without GPUs.
    Source: the notebook's function of that name.
    """
    if not gpu.get_available_gpus():
        log.info('full trace: no GPU, so CUPTI is not needed')
        return None
    try:
        ctypes.CDLL(ctypes.util.find_library('cupti') or 'libcupti.so')
    except OSError as error:
        log.warning(
            'full trace: CUPTI cannot be loaded, so the trace will lack the times of GPU '
            'kernels: %s',
            error,
        )
        return False
    log.info('full trace: CUPTI found')
    return True
