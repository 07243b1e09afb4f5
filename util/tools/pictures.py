"""Pictures that command-line tools draw with matplotlib, which is not needed for anything else."""

import contextlib
import os
from typing import Any

from util import errors


def pyplot() -> Any:
    """Returns matplotlib.pyplot, which draws without a screen.

    Raises:
      DeepSpeechError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise errors.DeepSpeechError(
            'a picture needs matplotlib: pip install -r requirements-dev.txt'
        ) from None
    matplotlib.use('Agg')
    from matplotlib import pyplot as plotting

    return plotting


def save(figure: Any, path: str, dpi: int) -> None:
    """Writes a figure beside its place and renames it; then closes the figure.

    Args:
      figure: matplotlib.figure.Figure.
      path: the file; its ending is the format, such as .png.
      dpi: dots per inch.
    Raises:
      DeepSpeechError: the file cannot be written, or its ending names no format of pictures.
    """
    base, ending = os.path.splitext(path)
    temporary = '%s.%d.tmp%s' % (base, os.getpid(), ending)
    try:
        figure.savefig(temporary, dpi=dpi)
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        raise errors.DeepSpeechError(
            '%s cannot be written: %s' % (path, getattr(error, 'strerror', None) or error)
        ) from None
    finally:
        with contextlib.suppress(OSError):  # what a full disk left
            os.remove(temporary)
        pyplot().close(figure)
