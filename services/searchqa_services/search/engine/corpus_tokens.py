"""A corpus on its way into an index: documents as token ids, in 4 bytes a token."""

from __future__ import annotations

from array import array

from searchqa_services.search.engine import tokenizer
from searchqa_services.search.engine.documents import Document
from searchqa_services.search.engine.errors import CorpusError
from searchqa_services.search.engine.params import BM25Params
from searchqa_services.search.engine.postings import Postings, build_postings


class CorpusTokens:
    """Collects documents as token ids, in 4 bytes a token, until they are scored."""

    def __init__(self, params: BM25Params) -> None:
        """Start empty."""
        self._params = params
        self._tokenize = tokenizer.make_tokenizer(
            lowercase=params.lowercase, stopwords=params.stopwords
        )
        self.vocabulary: dict[str, int] = {}
        self._documents: list[array[int]] = []
        self._ids: set[str] = set()
        self.empty = 0

    def add(self, document: Document) -> None:
        """Append one document.

        Raises:
            CorpusError: Its id was seen before.
        """
        if document.id in self._ids:
            raise CorpusError(f"document {len(self._documents)} repeats the id {document.id!r}")
        self._ids.add(document.id)
        number = self.vocabulary.setdefault
        tokens = self._tokenize(f"{document.title}\n{document.text}")
        self._documents.append(array("i", [number(t, len(self.vocabulary)) for t in tokens]))
        self.empty += not tokens

    def __len__(self) -> int:
        return len(self._documents)

    def score(self) -> Postings:
        """Compute the score matrix.

        Raises:
            CorpusError: The corpus holds no token at all.
        """
        if not self.vocabulary:
            raise CorpusError(
                f"the corpus has {len(self)} documents and not one word to index"
                " (stop words do not count)"
            )
        p = self._params
        return build_postings(self._documents, self.vocabulary, k1=p.k1, b=p.b, method=p.method)
