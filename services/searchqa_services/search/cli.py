"""The command ``searchqa-search``: build, inspect and query indexes, and serve one.

Every error a user can make is one sentence on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from searchqa_services.search.engine.errors import SearchServiceError

_EXTRAS = ("fastapi", "starlette", "uvicorn", "pydantic", "pydantic_settings", "prometheus_client")
Command = Callable[[argparse.Namespace], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        command(arguments)
    except (SearchServiceError, OSError) as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRAS:
            raise
        return _fail("serving needs an extra: pip install 'searchqa[services]'")
    except KeyboardInterrupt:
        return 130
    return 0


def _fail(sentence: str) -> int:
    print(f"searchqa-search: {sentence}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="searchqa-search", description="Build, inspect, query and serve search indexes."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_index(commands.add_parser("index", help="build, describe or verify an index"))
    _add_query(commands.add_parser("query", help="search an index once"))
    _add_serve(commands.add_parser("serve", help="serve an index over HTTP"))
    return parser


def _add_index(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="index a corpus (JSONL, plain or .gz)")
    build.add_argument("corpus", type=Path, help="lines of {id, title, text} or {id, contents}")
    build.add_argument("out", type=Path, help="index folder to create")
    build.add_argument("--k1", type=float, default=1.5, help="term saturation (1.5)")
    build.add_argument("--b", type=float, default=0.75, help="length normalisation (0.75)")
    build.add_argument("--method", default="lucene", help="lucene, robertson or atire")
    build.add_argument("--no-stopwords", action="store_true", help="index function words too")
    build.add_argument("--case-sensitive", action="store_true", help="keep upper and lower case")
    build.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    build.set_defaults(command=_build)
    for name, command, text in (
        ("info", _info, "say what an index is made of"),
        ("verify", _verify, "compare every byte of an index with its manifest"),
    ):
        sub = commands.add_parser(name, help=text)
        sub.add_argument("path", type=Path, help="index folder")
        sub.set_defaults(command=command)


def _add_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="index folder")
    parser.add_argument("text", help="the query")
    parser.add_argument("--top-k", type=int, default=3, help="most hits (3)")
    parser.set_defaults(command=_query)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--index", type=Path, help="index folder (or SEARCHQA_INDEX)")
    parser.add_argument("--host", help="address to bind (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to bind (8000; 0 takes a free one)")
    parser.add_argument("--workers", type=int, help="processes (1)")
    parser.add_argument("--threads", type=int, help="concurrent searches per process (2)")
    parser.set_defaults(command=_serve)


def _build(arguments: argparse.Namespace) -> None:
    from searchqa_services.search.engine.build import build_index
    from searchqa_services.search.engine.params import BM25Params

    params = BM25Params(
        k1=arguments.k1,
        b=arguments.b,
        method=arguments.method,
        lowercase=not arguments.case_sensitive,
        stopwords=None if arguments.no_stopwords else "en",
    )
    start = time.perf_counter()
    manifest = build_index(
        arguments.corpus, arguments.out, params, _report, overwrite=arguments.overwrite
    )
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    seconds = time.perf_counter() - start
    documents = manifest.corpus["documents"]
    print(f"{arguments.out}: {documents:,} documents in {seconds:.1f} s,", end=" ")
    print(f"fingerprint {manifest.fingerprint}")


def _report(stage: str, documents: int) -> None:
    doing = {"read": "reading", "score": "scoring", "write": "writing"}[stage]
    if sys.stderr.isatty():
        print(f"\r\033[K{doing}: {documents:,} documents", end="", flush=True, file=sys.stderr)
    elif stage != "read":
        print(f"{doing}: {documents:,} documents", file=sys.stderr)


def _info(arguments: argparse.Namespace) -> None:
    from searchqa_services.search.engine.fingerprint import check_files, read_manifest

    manifest = read_manifest(arguments.path)
    check_files(arguments.path, manifest)
    print(manifest.to_json(), end="")


def _verify(arguments: argparse.Namespace) -> None:
    from searchqa_services.search.engine.verify import verify_index

    report = verify_index(arguments.path)
    print(f"{arguments.path}: intact, {report.documents:,} documents,", end=" ")
    print(f"{report.found} of {report.sampled} sampled titles find their document")


def _query(arguments: argparse.Namespace) -> None:
    from searchqa_services.search.engine.bm25 import BM25Index

    hits = BM25Index.load(arguments.path).search([arguments.text], arguments.top_k)[0]
    for hit in hits:
        print(f"{hit.rank + 1}. {hit.document.title} [{hit.document.id}] {hit.score:.3f}")
        print(f"   {hit.document.text}")
    if not hits:
        print("no hits")


def _serve(arguments: argparse.Namespace) -> None:
    from searchqa_services.search.launch import launch

    names = ("index", "host", "port", "workers", "threads")
    given = {n: v for n in names if (v := getattr(arguments, n)) is not None}
    launch(given, lambda sentence: print(sentence, file=sys.stderr, flush=True))


if __name__ == "__main__":
    sys.exit(main())
