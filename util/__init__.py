"""The modules behind DeepSpeech.py: settings, data, parts of the graph, runs, tools."""

__version__ = '0.4.0'
