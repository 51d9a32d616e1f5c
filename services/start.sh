#!/bin/sh
# Serve the index in $SEARCHQA_DATA; build it first where there is none, from $SEARCHQA_CORPUS or,
# without one, from a generated demo world. Every step is all or nothing, so a restart goes on.
set -eu

data=${SEARCHQA_DATA:-data}
index=$data/index

if [ ! -f "$index/manifest.json" ]; then
  corpus=${SEARCHQA_CORPUS:-}
  if [ -z "$corpus" ]; then
    corpus=$data/world/corpus.jsonl
    if [ ! -f "$corpus" ]; then
      rm -rf "$data/world" "$data/world.partial"
      searchqa world --out "$data/world.partial" \
        ${SEARCHQA_PASSAGES:+--passages "$SEARCHQA_PASSAGES"} # unset: the environment's own world
      mv "$data/world.partial" "$data/world"
    fi
  fi
  searchqa-search index build "$corpus" "$index"
fi

exec searchqa-search serve --index "$index"
