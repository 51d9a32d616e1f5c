"""Every error this package raises on purpose, as one flat tree under ``SearchQAError``.

Each message is one sentence that says what is wrong and what would be right, so a command line
can print it as it is.
"""

from __future__ import annotations

import gymnasium


class SearchQAError(gymnasium.error.Error):
    """Base of everything this package raises on purpose.

    A Gymnasium error, so that a caller who knows the environment by its id alone can catch it.
    """


class ConfigError(SearchQAError):
    """An argument or option that cannot work, found before anything ran."""


class QuestionFileError(SearchQAError):
    """A question file that is empty or malformed; names the file and the line."""


class SearchUnavailable(SearchQAError):
    """The search service could not be reached, or kept failing until the deadline."""


class SearchProtocolError(SearchQAError):
    """The search service answered, but not in the form the wire promises."""


class EpisodeError(SearchQAError):
    """A call out of order, such as a step after the end of an episode."""


class RecordError(SearchQAError):
    """A text that is not an episode record of the version this package reads."""
