"""What DeepSpeech.py stands on: settings, data, graph parts, runs, tools."""

__version__ = '0.2.0'
