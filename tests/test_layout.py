"""The rooms of util/: imports point down, and importing does nothing but define."""

import ast
import os
import pathlib
import subprocess
import sys

from helpers import PROJECT

# From the top down; what stands in one row doesn't import one another but within its folder
FLOORS = (
    ('util.tools',),
    ('DeepSpeech', 'util.recognition'),
    ('util.run',),
    ('util.importers',),
    ('util.feeding',),
    ('util.augmentation',),
    ('util.corpora', 'util.graph', 'util.language', 'util.serving'),
    ('util',),
)


def modules():
    """{name: path} of the project's own modules, without tests."""
    found = {'DeepSpeech': pathlib.Path(PROJECT, 'DeepSpeech.py')}
    for path in pathlib.Path(PROJECT, 'util').rglob('*.py'):
        parts = path.relative_to(PROJECT).with_suffix('').parts
        found['.'.join(parts[:-1] if parts[-1] == '__init__' else parts)] = path
    return found


def imports():
    """{name: names of the project's modules that it imports, also within functions}."""
    known, found = modules(), {}
    for name, path in known.items():
        wanted = set()
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted |= {
                    node.module,
                    *('%s.%s' % (node.module, each.name) for each in node.names),
                }
            elif isinstance(node, ast.Import):
                wanted |= {each.name for each in node.names}
        packages = {'util', 'util.importers', name.rpartition('.')[0]}
        found[name] = {
            each
            for each in wanted & set(known)
            if each not in packages - {'util.importers'} and each != name
        }
    return found


def floor(name):
    """Index of the floor of a module, and its place there; the longest prefix counts."""
    return max(
        (len(place), index, place)
        for index, row in enumerate(FLOORS)
        for place in row
        if name == place or name.startswith(place + '.')
    )[1:]


def test_imports_point_down():
    upwards = []
    for name, wanted in imports().items():
        for other in wanted:
            (own_floor, own), (its_floor, its) = floor(name), floor(other)
            to_own_package = other == 'util.importers' and own == other
            if own != its and its_floor <= own_floor and not to_own_package:
                upwards.append('%s imports %s' % (name, other))
    assert not upwards


def test_there_are_no_circles():
    wanted = imports()
    for name in wanted:  # the importers take `reader` from their package, which imports none
        wanted[name] -= {'util.importers'} if name.startswith('util.importers.') else set()

    def visit(name, path):
        assert name not in path, ' -> '.join([*path[path.index(name) :], name])
        for other in sorted(wanted[name]):
            visit(other, [*path, name])

    for name in wanted:
        visit(name, [])


def test_importing_defines_and_does_nothing(tmp_path):
    names = sorted(set(modules()) - {'util.tf1'})
    code = (
        'import os, sys, threading; sys.path.insert(0, %r); before = dict(os.environ)\n'
        'import %s\n'
        'assert threading.active_count() == 1\n'
        'assert dict(os.environ) == before' % (PROJECT, ', '.join(names))
    )
    done = subprocess.run(
        [sys.executable, '-c', code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=dict(os.environ, ds_nonsense='1'),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ''
    assert os.listdir(tmp_path) == []


def test_the_names_of_the_notebook_are_there():
    import DeepSpeech

    names = """BiRNN variable_on_cpu calculate_accuracy_and_loss create_optimizer get_tower_results
        average_gradients apply_gradients log_variable log_grads_and_vars print_wer_report
        collect_results calculate_and_print_wer_report run_inference train"""
    assert [name for name in names.split() if not callable(getattr(DeepSpeech, name, None))] == []
