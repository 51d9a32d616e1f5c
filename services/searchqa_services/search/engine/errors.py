"""The error tree of the search service: every message is one sentence a user can act on.

SearchServiceError
├── CorpusError        a corpus file or document cannot be indexed
├── IndexMissing       there is no index where one was expected
├── IndexMismatch      an index exists, but not one this program can trust
├── IndexExists        a build would overwrite something
└── InvalidParameter   a setting or request value is out of range
"""

from __future__ import annotations


class SearchServiceError(Exception):
    """Root of every error this package raises on purpose."""


class CorpusError(SearchServiceError):
    """A corpus cannot be indexed; the message names the file and line where there is one."""


class IndexMissing(SearchServiceError):
    """No index lies at the given path."""


class IndexMismatch(SearchServiceError):
    """An index differs from its fingerprint or from what this program can read."""


class IndexExists(SearchServiceError):
    """The output of a build exists and overwriting was not asked for."""


class InvalidParameter(SearchServiceError):
    """A parameter has a value outside its range."""
