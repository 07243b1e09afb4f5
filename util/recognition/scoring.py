"""The error rates of the texts of a manifest, in the words of the training's report."""

import math

from util import text
from util.recognition.inputs import Task
from util.recognition.pipeline import Transcript
from util.run import reports


class Score:
    """Collects the texts of a manifest and compares them with its transcripts."""

    def __init__(self) -> None:
        self._references: list[str] = []
        self._texts: list[str] = []
        self._losses: list[float] = []

    def add(self, task: Task, transcript: Transcript) -> str | None:
        """Adds a transcript.

        Returns:
          Why it does not count, as training would not use the utterance; None if it counts.
        """
        if task.reference is None:
            return task.no_reference
        if transcript.loss == math.inf:
            return 'too short for its transcript'
        self._references.append(task.reference)
        self._texts.append(transcript.text)
        self._losses.append(math.nan if transcript.loss is None else transcript.loss)
        return None

    def figures(self) -> str:
        """Returns 'loss 1.260615, WER 4.17% [10/240: 0 ins, 0 del, 10 sub], CER 1.16%'.

        The loss is left out if it is not known of every utterance: some were cut into parts, or
        the model gives no logits.
        """
        if not self._references:
            return 'no text could be compared with its transcript'
        loss = sum(self._losses) / len(self._losses)
        rates = text.error_rates(self._references, self._texts)
        results = reports.Results(self._references, self._texts, [], self._losses)
        outcome = reports.Outcome(loss, None, rates, results, 0.0, 0.0, 0.0, [])
        return '%s, CER %.2f%%' % (
            reports.figures(outcome).removeprefix('loss nan, '),
            100 * rates.cer,
        )
