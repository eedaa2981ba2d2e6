#!/bin/sh
# Makes internal/bind from the contract in ../../wit. Needs wit-bindgen-cli 0.63.0 and Go 1.27.3:
#
#   cargo install wit-bindgen-cli --version 0.63.0 --locked --no-default-features --features c,go,async
#
# `./generate.sh --check` fails if what lies in internal/bind is not what it would make. WEIR_WIT_BINDGEN and WEIR_GO name the two
# tools; else they are looked for in PATH.
#
# The generator knows one support package, and one place for it. Here its import path becomes that of internal/wit, which has what
# the bindings of this contract use. Both worlds have the same imports, so these are kept once; what differs is which functions
# are exported.
set -eu
cd "$(dirname "$0")"
module=github.com/weir-stream/weir/sdk/go
generator=${WEIR_WIT_BINDGEN:-wit-bindgen}
wanted="wit-bindgen-cli 0.63.0"
found=$("$generator" --version)
if [ "$found" != "$wanted" ]; then
  echo "generate.sh: $generator is \"$found\" and must be \"$wanted\"" >&2
  exit 1
fi
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for world in stateful simple; do
  "$generator" go --quiet --format=false --world "$world-operator" --pkg-name "$module/internal/bind" --out-dir "$made/$world" ../../wit 2>"$made/log" || { cat "$made/log" >&2; exit 1; }
done
mkdir "$made/bind"
cp -R "$made/stateful/imports" "$made/bind/imports"
for world in stateful simple; do
  mkdir -p "$made/bind/$world"
  cp "$made/$world/exports/wit_exports/"* "$made/bind/$world/"
  sed -i.orig "s/^package wit_exports/package $world/" "$made/bind/$world/"*.go
done
# Interfaces that are exported have only names for types, which nothing here uses.
rm -rf "$made/bind/imports/weir_plugin_processor" "$made/bind/imports/weir_plugin_checkpoint"
find "$made/bind" -name '*.go' -exec sed -i.orig "s|go.bytecodealliance.org/pkg/wit|$module/internal/wit|" {} +
# Only components have them.
find "$made/bind" -name '*.go' -exec sed -i.orig '1s|^|//go:build wasip1\n\n|' {} +
find "$made/bind" '(' -name '*.orig' -o -name empty.s ')' -exec rm {} +
"$("${WEIR_GO:-go}" env GOROOT)/bin/gofmt" -w "$made/bind"
if [ "${1:-}" = "--check" ]; then
  diff -r "$made/bind/imports" internal/bind/imports
  diff -r "$made/bind/stateful" internal/bind/stateful
  diff -r "$made/bind/simple" internal/bind/simple
  exit
fi
mkdir -p internal/bind
rm -rf internal/bind/imports internal/bind/stateful internal/bind/simple
cp -R "$made/bind/." internal/bind/
