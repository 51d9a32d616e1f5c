#!/bin/sh
# Serve an index of $SEARCHQA_CORPUS or, without one, of a generated demo world; build it first
# where $SEARCHQA_DATA holds none. Each source has an index folder of its own, so that another
# source never gets the old index. Every step is all or nothing, so a restart goes on.
set -eu

data=${SEARCHQA_DATA:-data}
corpus=${SEARCHQA_CORPUS:-}
passages=${SEARCHQA_PASSAGES:-}

refuse() {
  echo "searchqa-start: $1" >&2
  exit 2
}

case $passages in
*[!0-9]*) refuse "SEARCHQA_PASSAGES is '$passages', but it must be a whole number or empty" ;;
esac

if [ -n "$corpus" ]; then
  [ -z "$passages" ] || refuse "set SEARCHQA_CORPUS or SEARCHQA_PASSAGES, not both"
  [ -f "$corpus" ] || refuse "SEARCHQA_CORPUS is '$corpus', but there is no such file"
  index=$data/index-corpus-$(printf '%s' "$corpus" | cksum | cut -d ' ' -f 1)
else
  world=$data/world-${passages:-default}
  index=$data/index-demo-${passages:-default}
  corpus=$world/corpus.jsonl
  if [ ! -f "$index/manifest.json" ] && [ ! -f "$corpus" ]; then
    rm -rf "$world" "$world.partial"
    searchqa world --out "$world.partial" \
      ${passages:+--passages "$passages"} # unset: the environment's own world
    mv "$world.partial" "$world"
  fi
fi

# A corpus file that was written after its index was built is another corpus.
if [ ! -f "$index/manifest.json" ] || [ "$corpus" -nt "$index/manifest.json" ]; then
  searchqa-search index build --overwrite "$corpus" "$index"
fi

exec searchqa-search serve --index "$index"
