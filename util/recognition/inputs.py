"""Lists the utterances that a command line names: files, folders, manifests."""

import os
from typing import NamedTuple

from util import errors, records, text
from util.corpora import corpus_files, manifests

STANDARD_INPUT = '-'


class Task(NamedTuple):
    """An utterance to transcribe."""

    utterance: records.Utterance  # its exclusion_reason says why it cannot be transcribed
    manifest: str | None = None  # path of the manifest that lists it
    reference: str | None = None  # cleaned transcript, with which the text is compared
    no_reference: str | None = None  # why an utterance of a manifest is not compared


def list_tasks(
    arguments: list[str], alphabet: text.Alphabet, standard_input: str | None = None
) -> list[Task]:
    """Lists the utterances to transcribe, in the order of the arguments.

    What cannot be listed, such as a manifest that cannot be read, is a Task as well, with an
    exclusion reason.

    Args:
      arguments: paths of audio files, folders and manifests; STANDARD_INPUT.
      alphabet: that of the model.
      standard_input: path of a file that holds what came from the standard input.
    """
    return [
        task for argument in arguments for task in _tasks_of(argument, alphabet, standard_input)
    ]


def _tasks_of(argument, alphabet, standard_input):
    """Returns the Tasks of an argument."""
    if argument == STANDARD_INPUT:
        return [Task(records.Utterance(standard_input, argument))]
    if os.path.isdir(argument):
        found = corpus_files.find_files(argument, *corpus_files.AUDIO)
        if not found:
            return [_failed(argument, 'a folder without audio files')]
        return [Task(records.Utterance(path, path)) for path in found]
    if argument.lower().endswith(manifests.ENDINGS):
        try:
            utterances = manifests.read_manifest(argument)
        except errors.DataError as error:
            return [_failed(argument, str(error))]
        if not utterances:
            return [_failed(argument, 'a manifest without utterances')]
        return [_of_manifest(utterance, argument, alphabet) for utterance in utterances]
    return [Task(records.Utterance(argument, argument))]


def _failed(argument, reason):
    """Returns a Task that stands for an argument that cannot be used."""
    return Task(records.Utterance(argument, argument, exclusion_reason=reason))


def _of_manifest(utterance, manifest, alphabet):
    """Returns the Task of an utterance of a manifest. It is compared with the transcript under the
    conditions under which training would use it."""
    reference, unknown = text.clean_transcript(utterance.transcript or '', alphabet)
    if not reference:
        return Task(utterance, manifest, None, 'empty transcript')
    if unknown:
        characters = ', '.join(map(text.describe_char, unknown))
        return Task(utterance, manifest, None, 'characters outside the alphabet: %s' % characters)
    return Task(utterance, manifest, reference)
