"""Grammars: which sequences of words may be recognised.

A file of a grammar is a list of phrases, one a line:

    turn the light on | off
    (please)? stop

or a set of rules, each of which ends with a semicolon; `utterance` is what may be said:

    # one to five digits
    <digit> = zero | oh | one | two | three;
    <utterance> = <digit>{1,5};

An expression is a sequence of words; `a | b` is one or the other; (...) groups; after a word, a
rule or a group, `?` says that it may be left out, `*` that it may be repeated or left out, `+` that
it may be repeated, {n} that it comes n times, {m,n} m to n times, {m,} m times or more. A rule may
use others, but not itself. A line that begins with # is a comment.

The rules are expanded and become a nondeterministic automaton (Thompson's construction), and that
a deterministic one (the subset construction).
Source: Thompson, Communications of the ACM 11 (6), 1968; the form of the rules is that of JSGF.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from util import errors, text
from util.language import lexicon

MAIN = 'utterance'
MAX_STATES = 50_000  # of an automaton
MAX_REPEATED = 1000  # largest number in {m,n}
TOKEN = re.compile(
    r'\s*(?:(?P<rule><\s*[^<>\s]+\s*>)|(?P<times>\{\s*\d+\s*(?:,\s*\d*\s*)?\})'
    r'|(?P<mark>[()|?*+=;])|(?P<word>[^\s()|?*+=;<>{}]+)|(?P<wrong>\S))'
)
TIMES = {'?': (0, 1), '*': (0, None), '+': (1, None)}  # (least, most) repetitions


class Grammar(NamedTuple):
    """A deterministic automaton of words; state 0 is the start."""

    moves: list[dict[str, int]]  # {word: next state} of each state
    ends: frozenset[int]  # states in which an utterance may end

    @property
    def words(self) -> list[str]:
        """Returns the words that may occur, in alphabetical order."""
        return sorted({word for moves in self.moves for word in moves})


def load(path: str, alphabet: text.Alphabet, setting: str = 'ds_lm_grammar') -> Grammar:
    """Reads a grammar.

    Args:
      path: the file.
      alphabet: text.Alphabet, to which the words are mapped as transcripts are.
      setting: the setting that names the file, for messages.
    Raises:
      LanguageError: the file cannot be read, is not a grammar, or has a word that the alphabet
        cannot write; the message names file and line.
    """
    lines = lexicon.read_lines(path, setting)
    return parse(lines, alphabet, '%s: %s' % (setting, path))


def parse(lines: list[str], alphabet: text.Alphabet, origin: str) -> Grammar:
    """Makes a grammar of the lines of its file.

    Args:
      lines, alphabet: as in `load`.
      origin: the file, for messages.
    Raises:
      LanguageError: as `load`.
    """
    parser = _Parser(list(_tokens(lines, origin)), alphabet, origin)
    if any(token.kind == 'mark' and token.text in '=;' for token in parser.tokens):
        rules = parser.rules()
    else:
        rules = {MAIN: parser.phrases()}
    if MAIN not in rules:
        raise errors.LanguageError(
            '%s has no rule <%s>, which says what may be said' % (origin, MAIN)
        )
    builder = _Builder(rules, origin)
    start, end = builder.rule(MAIN, ())
    return _deterministic(builder, start, end, origin)


# Reading


class _Token(NamedTuple):
    """A part of a grammar's text."""

    kind: str  # rule, times, mark or word
    text: str
    line: int


def _tokens(lines, origin) -> Iterator[_Token]:
    """Yields the parts of a grammar's text."""
    for number, line in enumerate(lines, 1):
        if line.startswith('#'):
            continue
        for match in TOKEN.finditer(line.rstrip()):
            kind = str(match.lastgroup)
            if kind == 'wrong':
                raise errors.LanguageError(
                    '%s line %d: %r is not expected there' % (origin, number, match.group(kind))
                )
            yield _Token(kind, match.group(kind), number)


class _Parser:
    """Makes expressions of the text of a grammar.

    An expression is ('word', word), ('rule', name), ('sequence', expressions),
    ('choice', expressions) or ('times', expression, least, most); most is None without a limit.

    Args:
      tokens: list of _Token.
      alphabet: text.Alphabet.
      origin: the file, for messages.
    """

    def __init__(self, tokens, alphabet, origin):
        self.tokens, self._alphabet, self._origin = tokens, alphabet, origin
        self._at = 0

    def _fail(self, wanted):
        """Raises LanguageError at the present token."""
        if self._at < len(self.tokens):
            token = self.tokens[self._at]
            where, found = token.line, repr(token.text)
        else:
            where, found = (self.tokens[-1].line if self.tokens else 1), 'the end of the file'
        raise errors.LanguageError(
            '%s line %d: expected %s, got %s' % (self._origin, where, wanted, found)
        )

    def _peek(self, *texts):
        """Tells whether the present token is a mark of these texts."""
        if self._at == len(self.tokens):
            return False
        token = self.tokens[self._at]
        return token.kind == 'mark' and token.text in texts

    def _take(self, text):
        """Passes over a mark, which must be there."""
        if not self._peek(text):
            self._fail('"%s"' % text)
        self._at += 1

    def rules(self):
        """Returns {name: expression} of all rules."""
        found = {}
        while self._at < len(self.tokens):
            token = self.tokens[self._at]
            name = token.text.strip('<> ')
            if token.kind not in ('rule', 'word'):
                self._fail('the name of a rule')
            if name in found:
                self._fail('a rule that is not there yet')
            self._at += 1
            self._take('=')
            found[name] = self._choice()
            self._take(';')
        return found

    def phrases(self):
        """Returns the expression of a list of phrases, one a line."""
        if not self.tokens:
            self._fail('a phrase')
        everything, found = self.tokens, []
        for line in sorted({token.line for token in everything}):
            self.tokens, self._at = [token for token in everything if token.line == line], 0
            found.append(self._choice())
            if self._at < len(self.tokens):
                self._fail('a word, a rule or a group')
        return 'choice', found

    def _choice(self):
        """Reads an expression with its alternatives."""
        found = [self._sequence()]
        while self._peek('|'):
            self._at += 1
            found.append(self._sequence())
        return found[0] if len(found) == 1 else ('choice', found)

    def _sequence(self):
        """Reads one alternative."""
        found = []
        while self._at < len(self.tokens) and not self._peek('|', ')', ';', '=', '?', '*', '+'):
            found.append(self._repeated(self._item()))
        if not found:
            self._fail('a word, a rule or a group')
        return 'sequence', found

    def _item(self):
        """Reads a word, a rule or a group."""
        token = self.tokens[self._at]
        if token.kind == 'times':
            self._fail('a word, a rule or a group')
        self._at += 1
        if token.kind == 'rule':
            return 'rule', token.text.strip('<> '), token.line
        if token.kind == 'word':
            return self._words(token)
        found = self._choice()
        self._take(')')
        return found

    def _words(self, token):
        """Returns the expression of a word of the file, which the alphabet may write as several,
        such as one with a hyphen."""
        cleaned, unknown = text.clean_transcript(token.text, self._alphabet)
        if unknown or not cleaned:
            raise errors.LanguageError(
                '%s line %d: the alphabet %r cannot write the word %r'
                % (self._origin, token.line, ''.join(self._alphabet.labels), token.text)
            )
        return 'sequence', [('word', word) for word in lexicon.split(cleaned, self._alphabet)]

    def _repeated(self, item):
        """Reads what may follow an item: how often it comes."""
        while self._at < len(self.tokens):
            token = self.tokens[self._at]
            if token.kind == 'times':
                least, most = self._bounds(token)
            elif token.kind == 'mark' and token.text in TIMES:
                least, most = TIMES[token.text]
            else:
                break
            self._at += 1
            item = ('times', item, least, most)
        return item

    def _bounds(self, token):
        """Returns (least, most) of {n}, {m,n} or {m,}."""
        least, comma, most = token.text.strip('{} ').partition(',')
        bounds = int(least), int(most) if most.strip() else None if comma else int(least)
        if max(bounds[0], bounds[1] or 0) > MAX_REPEATED or (
            bounds[1] is not None and (bounds[1] < bounds[0] or bounds[1] == 0)
        ):
            self._fail('{m,n} with m <= n and n from 1 to %d' % MAX_REPEATED)
        return bounds


# Automata


class _Builder:
    """Builds the nondeterministic automaton of a grammar.

    Args:
      rules: {name: expression}, see _Parser.
      origin: the file, for messages.
    Attributes:
      moves: list of (word, next state) of each state; the word is None for a free move.
    """

    def __init__(self, rules, origin):
        self._rules, self._origin = rules, origin
        self.moves: list[list[tuple[str | None, int]]] = []

    def _state(self):
        """Adds a state."""
        if len(self.moves) == MAX_STATES:
            raise errors.LanguageError(
                '%s is too large: it has more than %d states' % (self._origin, MAX_STATES)
            )
        self.moves.append([])
        return len(self.moves) - 1

    def rule(self, name, used, line=None):
        """Adds the expression of a rule; returns (first state, last state).

        Args:
          used: names of the rules that are being expanded.
          line: where it is used, for messages.
        """
        where = '%s line %s' % (self._origin, line)
        if name not in self._rules:
            raise errors.LanguageError('%s: there is no rule <%s>' % (where, name))
        if name in used:
            raise errors.LanguageError(
                '%s: the rule <%s> uses itself (%s); a repetition is written with * or +'
                % (where, name, ' -> '.join([*used[used.index(name) :], name]))
            )
        return self._add(self._rules[name], (*used, name))

    def _add(self, expression, used):
        """Adds an expression; returns (first state, last state)."""
        kind, *rest = expression
        if kind == 'word':
            first, last = self._state(), self._state()
            self.moves[first].append((rest[0], last))
            return first, last
        if kind == 'rule':
            return self.rule(rest[0], used, rest[1])
        if kind == 'sequence':
            return self._chain([self._add(each, used) for each in rest[0]])
        if kind == 'choice':
            return self._either([self._add(each, used) for each in rest[0]])
        return self._times(*rest, used)

    def _free(self, here, there):
        """Adds a move without a word."""
        self.moves[here].append((None, there))

    def _chain(self, parts):
        """Puts parts one behind the other."""
        for (_, last), (first, _) in zip(parts, parts[1:]):
            self._free(last, first)
        return parts[0][0], parts[-1][1]

    def _either(self, parts):
        """Puts parts beside one another."""
        begin, end = self._state(), self._state()
        for first, last in parts:
            self._free(begin, first)
            self._free(last, end)
        return begin, end

    def _times(self, expression, least, most, used):
        """Adds an expression several times; the copies behind the least may be left out."""
        begin = end = self._state()
        exits = []
        for number in range(max(least, 1) if most is None else most):
            if number >= least:
                exits.append(end)
            first, last = self._add(expression, used)
            self._free(end, first)
            end = last
            if most is None and number == max(least, 1) - 1:
                self._free(last, first)
        last = self._state()
        for each in (*exits, end):
            self._free(each, last)
        return begin, last


def _deterministic(builder, start, end, origin):
    """Returns the Grammar of a nondeterministic automaton, by the subset construction."""
    begin = _closure(builder.moves, {start})
    numbers, found, ends = {begin: 0}, [begin], set()
    moves: list[dict[str, int]] = []
    for states in found:  # grows on the way
        if end in states:
            ends.add(len(moves))
        targets: dict[str, set[int]] = {}
        for state in states:
            for word, target in builder.moves[state]:
                if word is not None:
                    targets.setdefault(word, set()).add(target)
        moves.append({})
        for word in sorted(targets):
            reached = _closure(builder.moves, targets[word])
            if reached not in numbers:
                if len(numbers) == MAX_STATES:
                    raise errors.LanguageError(
                        '%s is too large: it has more than %d states' % (origin, MAX_STATES)
                    )
                numbers[reached] = len(found)
                found.append(reached)
            moves[-1][word] = numbers[reached]
    return Grammar(moves, frozenset(ends))


def _closure(moves, states):
    """Returns the states that free moves reach, with those from which they start."""
    reached, left = set(states), list(states)
    while left:
        for word, target in moves[left.pop()]:
            if word is None and target not in reached:
                reached.add(target)
                left.append(target)
    return frozenset(reached)
