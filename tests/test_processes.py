"""util.processes: which processes have ended."""

import os
import re
import subprocess
import sys

import pytest

from util import processes


@pytest.fixture
def other():
    """(Popen of a process that waits, its processes.Process)."""
    code = 'import sys; from util import processes; print(*processes.this(), sep="\\n", flush=True)'
    command = [sys.executable, '-c', code + '; sys.stdin.read()']
    folder = os.path.dirname(os.path.dirname(os.path.abspath(processes.__file__)))
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        identity = processes.Process(
            *[process.stdout.readline().rstrip('\n') for _ in processes.Process._fields]
        )
        yield process, identity._replace(pid=int(identity.pid))
        process.kill()


def test_a_process_runs_until_it_ends_even_if_nobody_asks_for_its_status(other):
    process, identity = other
    assert identity.pid == process.pid and identity != processes.this()
    assert not processes.has_ended(identity)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, but is still listed
    assert processes.has_ended(identity)
    process.wait()
    assert processes.has_ended(identity)


@pytest.mark.parametrize(
    'values, ended',
    [
        ({}, False),
        ({'start': '1'}, True),  # the number is that of another process by now
        ({'machine': 'another of this name', 'boot': 'another'}, False),
        ({'pid': 2**22 + 1}, True),  # the kernel gives no such number
        ({'pid': 2**80}, True),
        ({'host': 'elsewhere', 'pid': 2**22 + 1}, False),  # it may run there
        ({'namespace': 'of a container', 'pid': 2**22 + 1}, False),
    ],
)
def test_what_is_known_of_a_process(values, ended):
    assert processes.has_ended(processes.this()._replace(**values)) == ended


@pytest.mark.parametrize('number, ended', [('a machine\n', True), ('', False)])
def test_a_machine_that_was_started_again_is_known_by_its_number(
    monkeypatch, tmp_path, number, ended
):
    monkeypatch.setattr(processes, 'MACHINE_ID', str(tmp_path / 'machine-id'))
    (tmp_path / 'machine-id').write_text(number)
    assert processes.has_ended(processes.this()._replace(boot='an earlier one')) == ended


def test_a_mark_is_that_of_its_process(other):
    process, identity = other

    def abandoned(mark):
        return processes.is_abandoned(re.fullmatch(processes.MARK, mark))

    own, its = processes.mark(), '%d-%s-%s' % (process.pid, identity.namespace, identity.host)
    assert not abandoned(own) and not abandoned(its)
    process.kill()
    process.wait()
    assert abandoned(its)
    assert abandoned(str(process.pid))  # as older versions wrote it
    assert not abandoned('%d-%s-elsewhere' % (process.pid, identity.namespace))
    assert not abandoned('%d-1-%s' % (process.pid, identity.host))
