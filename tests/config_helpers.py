"""Loading settings as the tests of util/config.py do."""

import dataclasses
import json

import pytest

from util import config as settings, errors

FIELDS = {field.name: field for field in dataclasses.fields(settings.Config)}


def load(environ=None):
    """Returns what settings.load gives for an environment with the importer csv, which has no
    recipe."""
    return settings.load({'ds_importer': 'csv', **(environ or {})})


def error_of(environ):
    """Returns the message of the ConfigError that `load` raises."""
    with pytest.raises(errors.ConfigError) as error:
        load(environ)
    return str(error.value)


def write_json(tmp_path, content):
    """Writes settings.json, of an object or of text as it is; returns its path."""
    path = tmp_path / 'settings.json'
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding='utf-8')
    return str(path)


def file_error(tmp_path, content):
    """Returns the message of the ConfigError that a file of settings causes."""
    return error_of({'ds_config': write_json(tmp_path, content)})
