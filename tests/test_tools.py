"""What all command-line tools have in common: they start from any folder, and help is cheap."""

import os
import pathlib
import subprocess
import sys

import pytest

from helpers import PROJECT

FOLDER = pathlib.Path(PROJECT, 'util', 'tools')
TOOLS = sorted(path.stem for path in FOLDER.glob('*.py') if '__main__' in path.read_text())
HEAVY = ('tensorflow', 'scipy', 'matplotlib', 'torch', 'util.importers')


def test_every_tool_is_found():
    assert {'benchmark', 'check_data', 'torch_weights'} <= set(TOOLS)


@pytest.mark.parametrize('start', ('file', 'module'))
@pytest.mark.parametrize('tool', TOOLS)
def test_help_is_given_in_any_folder_and_reads_neither_settings_nor_tensorflow(
    tmp_path, tool, start
):
    environment = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
    environment['ds_no_setting'] = 'nonsense'  # an error to whoever reads the settings
    command = [str(FOLDER / (tool + '.py'))]
    if start == 'module':
        environment['PYTHONPATH'] = PROJECT
        command = ['-m', 'util.tools.' + tool]
    done = subprocess.run(
        [sys.executable, '-X', 'importtime', *command, '--help'],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('usage: python -m util.tools.%s [-h]' % tool)
    imported = {line.split('|')[-1].strip() for line in done.stderr.splitlines()}
    assert 'argparse' in imported
    assert not imported & set(HEAVY)
    assert os.listdir(tmp_path) == []
