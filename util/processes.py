"""Processes: what tells one apart from all others, and whether it still runs."""

import os
import pathlib
import platform
import re
from typing import NamedTuple

# What `mark` returns, as a pattern; older versions wrote the process id alone
MARK = r'(?P<pid>[0-9]{1,9})(?:-(?P<namespace>[0-9]*)-(?P<host>.+))?'
MACHINE_ID = '/etc/machine-id'
ENDED = ('Z', 'X')  # states of processes in /proc that have ended, but are not yet forgotten


class Process(NamedTuple):
    """What tells a process apart from all others; texts are empty where there is no /proc."""

    host: str
    machine: str  # its number, as machines may have the same name
    namespace: str  # of process ids: containers on a machine have their own
    boot: str  # of the machine
    pid: int
    start: str  # ticks of the clock since `boot`


def this() -> Process:
    """Returns this process."""
    pid, machine, boot = os.getpid(), _line(MACHINE_ID), _line('/proc/sys/kernel/random/boot_id')
    return Process(platform.node(), machine, _namespace(), boot, pid, _state_and_start(pid)[1])


def has_ended(process: Process) -> bool:
    """Tells whether a process is known to have ended; False for one of another machine or
    container, of which nothing can be known."""
    here = this()
    if (process.host, process.machine) != (here.host, here.machine):
        return False
    if process.boot != here.boot:
        return bool(here.machine)  # it was started again, unless it is another one
    if process.namespace != here.namespace:
        return False
    if not _exists(process.pid):
        return True
    state, start = _state_and_start(process.pid)
    return state in ENDED or bool(start) and start != process.start


def is_in_another_container(process: Process) -> bool:
    """Tells whether a process runs, or ran, under the kernel of this one, but in another container,
    so that its number says nothing here."""
    here = this()
    return bool(here.boot) and process.boot == here.boot and process.namespace != here.namespace


def _line(path):
    """Returns the content of a file of one line; '' if it cannot be read."""
    try:
        return pathlib.Path(path).read_text(errors='replace').strip()
    except OSError:
        return ''


def _namespace():
    """Returns the number of the namespace of this process's id; '' if it is unknown."""
    try:
        return re.sub('[^0-9]', '', os.readlink('/proc/self/ns/pid'))
    except OSError:
        return ''


def _exists(pid):
    """Tells whether there is a process of this number, which may be another one by now."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _state_and_start(pid):
    """Returns the state of a process and its start in ticks since the machine's; two empty texts
    if they are unknown."""
    try:
        content = pathlib.Path('/proc/%d/stat' % pid).read_text(errors='replace')
    except OSError:
        return '', ''
    fields = content.rpartition(')')[2].split()  # the name before may hold spaces
    return fields[0], fields[19]


def mark() -> str:
    """Returns a text for the name of a file that only this process writes, see `MARK`."""
    return '%d-%s-%s' % (os.getpid(), _namespace(), platform.node())


def is_abandoned(match: re.Match[str]) -> bool:
    """Tells whether the process whose mark was found is one of this machine that has ended."""
    pid = int(match['pid'])
    there = (match['namespace'], match['host'])
    if there not in ((None, None), (_namespace(), platform.node())) or pid == os.getpid():
        return False
    return not _exists(pid) or _state_and_start(pid)[0] in ENDED
