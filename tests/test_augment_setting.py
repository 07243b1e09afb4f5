"""util.augment_setting: the grammar of ds_augment, and what it says about mistakes."""

import json
import pathlib
import re

import pytest

from helpers import PROJECT, load_config
from util import augment_setting as setting, config as settings, errors
from util.augment_setting import Range


def only(text):
    """Returns the only item of a setting."""
    (item,) = setting.parse(text)
    return item


def test_an_empty_setting_has_no_items():
    assert setting.parse('') == setting.parse('  ') == []
    assert load_config().augment == ''


def test_a_name_alone_has_the_defaults():
    assert only('speed') == setting.Item(
        'speed', 'speed', 1.0, 'signal', {'factor': Range(1.0, 1.0, 0.1)}
    )


@pytest.mark.parametrize(
    'written, expected',
    (
        ('1.2', Range(1.2, 1.2, 0)),
        ('1.2~0.1', Range(1.2, 1.2, 0.1)),
        ('0.9:1.2', Range(0.9, 1.2, 0)),
        ('1.1:0.9~0.05', Range(1.1, 0.9, 0.05)),
        ('1~0.6', Range(1, 1, 0.6)),  # 1 - 0.6 is less than 0.4 in binary numbers
        ('.5', Range(0.5, 0.5, 0)),
        ('1e0', Range(1, 1, 0)),
    ),
)
def test_values(written, expected):
    assert only('speed[factor=%s]' % written).values == {'factor': expected}


def test_several_items_keep_their_order():
    items = setting.parse('time_mask speed[p=0.5]  time_mask[n=1:5~1,size=30,domain=signal]')
    assert [(item.name, item.p, item.domain) for item in items] == [
        ('time_mask', 1.0, 'spectrogram'),
        ('speed', 0.5, 'signal'),
        ('time_mask', 1.0, 'signal'),
    ]
    assert items[2].values == {'n': Range(1, 5, 1), 'size': Range(30, 30, 0)}


@pytest.mark.parametrize(
    'text', ('overlay[source="a b/c.wav",snr=-5]', "'overlay[source=a b/c.wav, snr=-5]'")
)
def test_quotes_keep_spaces(text):
    values = only(text).values
    assert values['source'] == 'a b/c.wav' and values['snr'] == Range(-5, -5, 0)


def test_a_source_may_have_commas_and_brackets():
    assert only('overlay[source=a,b[1].wav,snr=1]').values['source'] == 'a,b[1].wav'


def test_the_default_of_a_value_depends_on_the_domain():
    stddevs = [only('add[domain=%s]' % d).values['stddev'].start for d in ('features', 'signal')]
    assert stddevs == [1.0, 0.003]
    assert only('add').domain == 'features'


@pytest.mark.parametrize('name', setting.AUGMENTATIONS)
def test_defaults_can_be_written(name):
    source = {'overlay': '[source=pink]'}.get(name, '')
    assert only(setting.with_defaults(name)).values == only(name + source).values


def test_a_value_moves_over_the_training_and_stays_at_its_ends():
    value = Range(1.0, 3.0)
    assert [value.center(share) for share in (-1, 0, 0.25, 1, 7)] == [1, 1, 1.5, 3, 3]


@pytest.mark.parametrize('name', setting.AUGMENTATIONS)
def test_the_readme_names_each_key_with_its_default(name):
    readme = pathlib.Path(PROJECT, 'util', 'README.md').read_text(encoding='utf-8')
    (row,) = re.findall(r'^\| `%s` .*$' % name, readme, re.MULTILINE)
    augmentation = setting.AUGMENTATIONS[name]
    for key, declared in augmentation.all_keys.items():
        default = declared.default_of(augmentation.domains[0])
        if key == 'source':
            assert '`source` (none)' in row
        elif key != 'p':
            assert '`%s=%s`' % (key, default) in row, key


# A list in a JSON file


def from_file(tmp_path, value):
    """Returns the Config of a JSON file with this ds_augment."""
    path = tmp_path / 'config.json'
    path.write_text(json.dumps({'ds_augment': value}))
    return settings.load({'ds_config': str(path), 'ds_importer': 'csv'})[0]


def test_a_json_list_is_the_same_as_the_text(tmp_path):
    items = ['speed[p=0.5]', 'overlay[source=my noise.wav]', 'time_mask']
    config = from_file(tmp_path, items)
    assert config.augment == "speed[p=0.5] 'overlay[source=my noise.wav]' time_mask"
    assert [item.text for item in setting.parse(config.augment)] == items
    assert from_file(tmp_path, 'speed[p=0.5] time_mask').augment == 'speed[p=0.5] time_mask'


def test_other_json_values_and_other_settings_take_no_list(tmp_path):
    for value in (['speed', 1], {'speed': 1}, 3):
        with pytest.raises(errors.ConfigError, match='^ds_augment must be text'):
            from_file(tmp_path, value)
    path = tmp_path / 'config.json'
    path.write_text('{"ds_train_files": ["a.csv"]}')
    with pytest.raises(errors.ConfigError, match='^ds_train_files must be text'):
        settings.load({'ds_config': str(path)})


def test_the_setting_is_shown_as_text():
    config, sources = settings.load({'ds_importer': 'csv', 'ds_augment': 'speed[p=0.5] time_mask'})
    (line,) = [
        each
        for each in settings.effective_text(config, sources).splitlines()
        if each.startswith('ds_augment ')
    ]
    assert line.split() == ['ds_augment', 'speed[p=0.5]', 'time_mask', 'environment']


# Mistakes


@pytest.mark.parametrize(
    'text, words',
    (
        ('sped', ('sped is not an augmentation', 'nearest is speed', 'vtlp', 'multiply')),
        ('time-mask', ('time-mask is not an augmentation', 'nearest is time_mask')),
        ('speed[facto=1]', ('speed has no key facto', 'nearest is factor', 'keys are p, factor')),
        ('vtlp[=1]', ("vtlp has no key ''",)),
        ('speed[1.1]', ("expected key=value, got '1.1'", 'keys are p, factor')),
        ('speed[p=1,p=1]', ('key p twice',)),
        ('speed[p=1.5]', ('p must be a number from 0 to 1, got 1.5',)),
        ('speed[p=-0.1]', ('p must be', 'got -0.1')),
        ('speed[p=0:1]', ('p must be one number from 0 to 1, got 0:1',)),
        ('speed[p=0.5~0.1]', ('p must be one number', 'got 0.5~0.1')),
        ('speed[factor=fast]', ('factor must be numbers from 0.4 to 2.5', 'got fast')),
        ('speed[factor=]', ("got ''",)),
        ('speed[factor=nan]', ('got nan',)),
        ('speed[factor=1e999]', ('got 1e999',)),
        ('speed[factor=1~-0.1]', ('got 1~-0.1',)),
        ('speed[factor=1~0.7]', ('from 0.4 to 2.5', 'got 1~0.7')),
        ('speed[factor=1:2.4~0.2]', ('got 1:2.4~0.2',)),
        ('overlay[source=white,snr=1000]', ('snr must be', '-60 to 120 dB', 'got 1000')),
        ('overlay[source=white,layers=0]', ('layers must be whole numbers', 'got 0')),
        ('time_mask[n=1.5]', ('n must be whole numbers', 'got 1.5')),
        ('time_mask[domain=mel]', ('domain must be one of spectrogram, features, signal', 'mel')),
        ('codec[format=ogg]', ('format must be one of mp3, opus', 'ogg')),
        ('overlay', ('overlay needs source=FILE', 'source=white')),
        ('overlay[source=]', ('overlay needs source=FILE',)),
        ('speed[p=0.5', ('speed[p=0.5', 'both brackets')),
        ('speed]', ('speed]', 'both brackets')),
        ('speed[p=1]]', ('speed[p=1]]', 'both brackets')),
        ('speed[p=0.5, factor=1]', ('speed[p=0.5,', 'no space')),
        ('"speed', ('quotes are not balanced', '"speed')),
    ),
)
def test_a_mistake_gives_one_line(text, words):
    with pytest.raises(errors.ConfigError) as raised:
        load_config(augment=text)
    message = str(raised.value)
    assert message.startswith('ds_augment: ') and '\n' not in message
    for word in words:
        assert word in message
