"""util.run.command: the streams of a process that cannot be written or hold no accents."""

import os
import subprocess
import sys

import pytest

from helpers import PROJECT

BEGIN = 'import sys\nfrom util.run import command\n'
GOES_ON = BEGIN + 'command.begin(goes_on=True)\n'
LONG = 'for _ in range(3): print("a" * 100000, flush=True)\nsys.stderr.write("end\\n")\n'
LIMIT_S = 100


def run(code, *arguments, **options):
    """Runs Python code in the project's folder."""
    options.setdefault('stdout', subprocess.PIPE)
    return subprocess.run(
        [sys.executable, '-c', code, *arguments],
        cwd=PROJECT,
        stderr=subprocess.PIPE,
        timeout=LIMIT_S,
        **options,
    )


@pytest.fixture
def no_reader():
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def test_a_run_goes_on_without_a_reader(no_reader):
    done = run(GOES_ON + LONG, stdout=no_reader)
    said = b'the standard output cannot be written (Broken pipe); the run goes on\nend\n'
    assert (done.returncode, done.stderr) == (0, said)


def test_a_run_goes_on_on_a_full_disk():
    with open('/dev/full', 'wb') as full:
        done = run(GOES_ON + LONG, stdout=full)
    said = (
        b'the standard output cannot be written (No space left on device); the run goes on\nend\n'
    )
    assert (done.returncode, done.stderr) == (0, said)


def test_a_run_goes_on_with_no_stream_at_all(tmp_path):
    code = GOES_ON + 'print("a")\nopen(sys.argv[1], "w").write("b")\nprint("c", file=sys.stderr)'

    def close():
        for number in range(3):
            os.close(number)

    assert run(code, str(tmp_path / 'file'), preexec_fn=close).returncode == 0
    assert (tmp_path / 'file').read_text() == 'b'  # nothing else went into the file


def test_a_slow_reader_gets_everything():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = subprocess.Popen(
        [sys.executable, '-c', GOES_ON + LONG], cwd=PROJECT, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    with open(reading, 'rb') as file:
        assert file.read() == (b'a' * 100000 + b'\n') * 3
    assert process.communicate(timeout=LIMIT_S)[1] == b'end\n'


def test_a_tool_ends_quietly_without_a_reader(no_reader):
    code = BEGIN + 'def main(arguments):\n  print("a", flush=True)\n  return 5\ncommand.run(main)'
    done = run(code, stdout=no_reader)
    assert (done.returncode, done.stderr) == (0, b'')
    with open('/dev/full', 'wb') as full:
        done = run(code, stdout=full)
    said = b'error: the standard output cannot be written: No space left on device\n'
    assert (done.returncode, done.stderr) == (1, said)
    assert run(code).returncode == 5


def test_what_an_encoding_lacks_is_escaped():
    code = GOES_ON + 'print("caf\\xe9 \\udcff")'
    done = run(code, env=dict(os.environ, PYTHONIOENCODING='ascii'))
    assert (done.stdout, done.stderr) == (b'caf\\xe9 \\udcff\n', b'')
    done = run(code, env=dict(os.environ, PYTHONIOENCODING='utf-8'))
    assert done.stdout == 'caf\xe9 \\udcff\n'.encode()


def test_file_names_are_in_utf8_in_any_locale(tmp_path):
    values = dict(LC_ALL='C', PYTHONUTF8='0', PYTHONCOERCECLOCALE='0', name=str(tmp_path / 'é'))
    code = GOES_ON + 'import os\nopen(os.environ["name"].encode("utf-8"), "w").close()'
    done = run(code + '\nprint(sys.argv[1])', 'ö', env={**os.environ, **values})
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, b'', 'ö'.encode())
    assert os.listdir(tmp_path) == ['é']


def test_a_terminal_gets_no_commands_from_data():
    leader, follower = os.openpty()
    done = run(GOES_ON + r'print("\x1b[2Ja\u202eb\tc\n\x07")', stdout=follower)
    os.close(follower)
    assert os.read(leader, 1000) == rb'\x1b[2Ja\u202eb' + b'\tc\r\n' + rb'\x07' + b'\r\n'
    os.close(leader)
    assert done.returncode == 0
