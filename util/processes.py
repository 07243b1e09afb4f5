"""Processes: what tells one apart from all others, and whether it still runs."""

import os
import pathlib
import platform
import re
from typing import NamedTuple

# What `mark` returns, as a pattern; older versions wrote the process id alone
MARK = r'(?P<pid>[0-9]{1,9})(?:-(?P<host>.+))?'
ENDED = ('Z', 'X')  # states of processes in /proc that have ended, but are not yet forgotten


class Process(NamedTuple):
    """What tells a process apart from all others; texts are empty where there is no /proc."""

    host: str
    namespace: str  # of process ids: containers on a machine have their own
    boot: str  # of the machine
    pid: int
    start: str  # ticks of the clock since `boot`


def this() -> Process:
    """Returns this process."""
    namespace = boot = ''
    try:
        namespace = os.readlink('/proc/self/ns/pid')
        boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    except OSError:
        pass
    pid = os.getpid()
    return Process(platform.node(), namespace, boot, pid, _state_and_start(pid)[1])


def has_ended(process: Process) -> bool:
    """Tells whether a process is known to have ended; False for one of another machine or
    container, of which nothing can be known."""
    here = this()
    if process.host != here.host:
        return False
    if process.boot != here.boot:
        return True
    if process.namespace != here.namespace:
        return False
    if not _exists(process.pid):
        return True
    state, start = _state_and_start(process.pid)
    return state in ENDED or bool(start) and start != process.start


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
    return '%d-%s' % (os.getpid(), platform.node())


def is_abandoned(match: re.Match[str]) -> bool:
    """Tells whether the process whose mark was found is one of this machine that has ended."""
    pid = int(match['pid'])
    if match['host'] not in (None, platform.node()) or pid == os.getpid():
        return False
    return not _exists(pid) or _state_and_start(pid)[0] in ENDED
