"""Replies of other retrieval servers, read without a server."""

from __future__ import annotations

from searchqa.http_search import read_reply


def test_replies_of_other_servers_are_read() -> None:
    bare = {"result": [[{"id": 5, "contents": "T\nx"}], []]}
    (hit,), nothing = read_reply(bare, 2, 3, "u")
    assert (hit.id, hit.contents, hit.score, nothing) == ("5", "T\nx", 0.0, [])
    scoreless = {"result": [[{"document": {"contents": "T\nx"}, "score": None}] * 9]}
    null = {"result": [[{"document": {"id": None, "contents": "a\ud800"}, "score": 1}]]}
    (odd,) = read_reply(null, 1, 3, "u")[0]
    assert (odd.id, odd.contents, odd.score) == ("", "a\ufffd", 1.0)
    hits = read_reply(scoreless, 1, 3, "u")[0]
    assert len(hits) == 3
    assert (hits[0].id, hits[0].score) == ("", 0.0)
