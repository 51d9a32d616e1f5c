"""The learner's errors.

LearnerError
├── ConfigError     a setting, file or folder that cannot be used as given
├── EpisodeError    an episode record that cannot be trained on
└── TrainingError   a run that must stop: non-finite steps, no valid episodes, a failed self-test
"""

from __future__ import annotations


class LearnerError(Exception):
    """Base of every error this package raises on purpose; the message is one clear sentence."""


class ConfigError(LearnerError):
    """A setting, file or folder that cannot be used as given."""


class EpisodeError(LearnerError):
    """An episode record that cannot be trained on."""


class TrainingError(LearnerError):
    """A run that must stop because going on would train on nothing or on garbage."""
