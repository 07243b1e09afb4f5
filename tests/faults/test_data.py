"""Downloads that are tampered with, and files that change under a reader."""

import functools
import http.server
import os
import shutil
import ssl
import subprocess
import threading

import pytest
import requests

from helpers import speech, write_wav
from util import audio, errors
from util.corpora import download

pytestmark = pytest.mark.run


@pytest.mark.parametrize(
    'url, target, refused',
    [
        ('https://a.org/x', 'http://a.org/x', True),
        ('https://a.org/x', 'HTTP://b.org/x', True),
        ('https://a.org/x', 'https://b.org/y', False),
        ('https://a.org/x', '/y', False),
        ('https://a.org/x', '//b.org/y', False),
        ('http://a.org/x', 'http://b.org/y', False),
        ('http://a.org/x', 'https://b.org/y', False),
    ],
)
def test_no_redirect_leads_from_https_to_http(url, target, refused):
    response = requests.Response()
    response.url, response.status_code, response.headers['location'] = url, 302, target
    session = download._Session()
    if refused:
        with pytest.raises(download._Refused, match='redirects from https to '):
            session.get_redirect_target(response)
    else:
        assert session.get_redirect_target(response) == target


@pytest.fixture
def tls_server(tmp_path):
    """An HTTPS server whose certificate nobody has signed; returns its address."""
    if shutil.which('openssl') is None:
        pytest.skip('no openssl to make a certificate')
    subprocess.run(
        'openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 1 '
        '-subj /CN=localhost -addext subjectAltName=DNS:localhost'.split(),
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    (tmp_path / 'site').mkdir()
    (tmp_path / 'site' / 'x.tar').write_bytes(b'content')
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / 'site')
    )
    server = http.server.ThreadingHTTPServer(('localhost', 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / 'cert.pem', tmp_path / 'key.pem')
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield 'https://localhost:%d/x.tar' % server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_certificates_are_checked(tls_server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, 'RETRY_DELAYS_S', (0,))
    monkeypatch.setenv('no_proxy', '*')
    for name in ('REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE'):
        monkeypatch.delenv(name, raising=False)
    target = tmp_path / 'got' / 'x.tar'
    with pytest.raises(errors.DataError, match='(?i)certificate'):
        download.download(tls_server, str(target))
    assert not target.exists()
    monkeypatch.setenv('REQUESTS_CA_BUNDLE', str(tmp_path / 'cert.pem'))
    download.download(tls_server, str(target))
    assert target.read_bytes() == b'content'


def test_a_pipe_put_in_a_file_s_place_is_not_waited_for(tmp_path):
    path = write_wav(tmp_path / 'a.wav', speech(0.1))
    assert len(audio.read_audio(path)) == 1600
    os.remove(path)
    os.mkfifo(path)
    found = []

    def read():
        try:
            audio.read_audio(path)
        except audio.AudioError as error:
            found.append(str(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert found == ['not a regular file']


@pytest.mark.parametrize('change', ['removed', 'emptied', 'replaced', 'folder'])
def test_a_file_that_changes_after_its_header_was_read(tmp_path, change):
    path = write_wav(tmp_path / 'a.wav', speech(0.5))
    assert audio.audio_info(path).frames == 8000
    os.remove(path)
    if change == 'emptied':
        open(path, 'w').close()
    elif change == 'replaced':
        (tmp_path / 'a.wav').write_text('<html>')
    elif change == 'folder':
        os.mkdir(path)
    expected = {'removed': 'cannot be read: ', 'folder': 'not a regular file'}
    with pytest.raises(audio.AudioError, match=expected.get(change, 'not an audio file: ')):
        audio.read_audio(path)
