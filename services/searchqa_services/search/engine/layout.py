"""The names of the files in an index folder, in one place: what may be loaded, and be replaced."""

from __future__ import annotations

MANIFEST_FILE = "manifest.json"
DOCUMENTS_FILE = "documents.jsonl"
OFFSETS_FILE = "offsets.npy"
VOCABULARY_FILE = "vocabulary.json"
STARTS_FILE = "starts.npy"
POSTINGS_FILE = "postings.npy"
SCORES_FILE = "scores.npy"

PARTS = (
    DOCUMENTS_FILE,
    OFFSETS_FILE,
    VOCABULARY_FILE,
    STARTS_FILE,
    POSTINGS_FILE,
    SCORES_FILE,
)
"""Every file of an index but its manifest."""
