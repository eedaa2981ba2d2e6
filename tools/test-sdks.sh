#!/usr/bin/env bash
# The unit tests of the SDKs in languages other than Rust, each by its own runner. A language whose tools are not there is left out, with a line
# that says so; where CI is set that is a failure. That operators in each language conform is another test (tests/tests/languages.rs).
#
# Tools are looked for as `weir plugin build` does it: WEIR_GO and WEIR_ZIG_PYTHON, else PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../sdk"

lacks() { # language, what is missing
  echo "sdk/$1: skipped, $2 is not there" >&2
  [ -z "${CI:-}" ]
}
run() { # folder, command
  echo "sdk/$1: ${*:2}"
  (cd "$1" && "${@:2}")
}

if command -v node >/dev/null; then
  run js node --test test/
  if [ -e js/node_modules/esbuild ]; then
    for example in js/examples/*/; do run "${example%/}" npm test --silent; done
  else
    lacks js "node_modules with esbuild and componentize-qjs (npm install in sdk/js)"
  fi
else
  lacks js node
fi

if command -v python3 >/dev/null; then
  run python python3 -m unittest --quiet
  for example in python/examples/*/; do run "${example%/}" python3 -m unittest --quiet; done
else
  lacks python python3
fi

go=${WEIR_GO:-go}
if command -v "$go" >/dev/null; then
  export GOTOOLCHAIN=local
  run go "$go" vet ./...
  run go "$go" test ./...
  for example in go/examples/*/; do run "${example%/}" "$go" test .; done
else
  lacks go go
fi

if command -v cc >/dev/null; then
  run c make --silent test
else
  lacks c "a C compiler"
fi

if command -v zig >/dev/null; then
  zig=(zig)
elif [ -n "${WEIR_ZIG_PYTHON:-}" ]; then
  zig=("$WEIR_ZIG_PYTHON" -m ziglang)
else
  zig=()
fi
if [ ${#zig[@]} -gt 0 ]; then
  run zig "${zig[@]}" build test
else
  lacks zig "zig (or WEIR_ZIG_PYTHON)"
fi
