#!/usr/bin/env bash
# The unit tests of the SDKs in languages other than Rust, each by its own runner; those of what `weir plugin new` makes, outside of this
# repository and as its README says; and whether the bindings that are kept here are those of wit/. A language whose tools are not there is
# left out, with a line that says so; where CI is set that is a failure.
#
# That operators in each language conform, and that new projects build and run, is another test (tests/tests/languages.rs); a new project in
# Rust is in tests/tests/plugin_cli.rs.
#
# Tools are looked for as `weir plugin build` does it: WEIR_GO and WEIR_ZIG_PYTHON, else PATH. WEIR_WIT_BINDGEN, else PATH, has what makes
# the bindings. WEIR is the command, by a whole path; else it is looked for in PATH too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lacks() { # what is left out, what is missing
  echo "$1: skipped, $2 is not there" >&2
  [ -z "${CI:-}" ]
}
run() { # folder, command
  echo "$1: ${*:2}"
  (cd "$1" && "${@:2}")
}
# For C and Go only: those of Rust, JavaScript and Python are made when an operator is built; Zig and AssemblyScript have none.
check_bindings() { # folder of generate.sh
  if command -v "${WEIR_WIT_BINDGEN:-wit-bindgen}" >/dev/null; then
    run "$1" ./generate.sh --check
  else
    lacks "$1" "wit-bindgen (or WEIR_WIT_BINDGEN)"
  fi
}

projects=$(mktemp -d)
trap 'rm -rf "$projects"' EXIT
test_new() { # language, command
  local project=$projects/new-$1
  [ -n "$weir" ] || return 0
  if [ ! -d "$project" ]; then
    "$weir" plugin new "new-$1" --lang "$1" --path "$projects" >"$projects/log" 2>&1 || { cat "$projects/log" >&2; return 1; }
    # As `npm install` would put them.
    [ "$1" != ts ] || ln -s "$PWD/sdk/js/node_modules" "$project/node_modules"
  fi
  run "$project" "${@:2}"
}

weir=${WEIR:-weir}
if ! command -v "$weir" >/dev/null; then
  weir=
  lacks "what weir plugin new makes" "weir (or WEIR)"
fi

if command -v node >/dev/null; then
  run sdk/js npm test --silent
  test_new js npm test --silent
  if [ -e sdk/js/node_modules/typescript ]; then
    for example in sdk/js/examples/*/; do run "${example%/}" npm test --silent; done
    run sdk/js/examples/visits npm run check --silent
    test_new ts npm run check --silent
    test_new ts npm test --silent
  else
    lacks "sdk/js/examples, TypeScript" "node_modules (npm install in sdk/js)"
  fi
else
  lacks sdk/js node
fi

if command -v node >/dev/null && [ -e sdk/assemblyscript/tally/node_modules ]; then
  run sdk/assemblyscript/tally npm test --silent
  if [ -n "$weir" ]; then
    run sdk/assemblyscript/tally "$weir" plugin componentize build/module.wasm --world stateful-operator --output tally-as.wasm
    run sdk/assemblyscript/tally "$weir" plugin test tally-as.wasm --input ../../conformance/input.jsonl --format json --key /key --event-time /at \
      --out-of-orderness 5m
  fi
else
  lacks sdk/assemblyscript "node with AssemblyScript (npm ci in sdk/assemblyscript/tally)"
fi

if command -v python3 >/dev/null; then
  run sdk/python python3 -m unittest --quiet
  for example in sdk/python/examples/*/; do run "${example%/}" python3 -m unittest --quiet; done
  test_new python python3 -m unittest --quiet
else
  lacks sdk/python python3
fi

go=${WEIR_GO:-go}
if command -v "$go" >/dev/null; then
  export GOTOOLCHAIN=local
  check_bindings sdk/go
  run sdk/go "$go" vet ./...
  run sdk/go "$go" test ./...
  for example in sdk/go/examples/*/; do run "${example%/}" "$go" test .; done
  test_new go "$go" test ./...
else
  lacks sdk/go go
fi

check_bindings sdk/c/bindings
if command -v cc >/dev/null; then
  run sdk/c make --silent test
  test_new c make --silent test
else
  lacks sdk/c "a C compiler"
fi

if command -v zig >/dev/null; then
  zig=(zig)
elif [ -n "${WEIR_ZIG_PYTHON:-}" ]; then
  zig=("$WEIR_ZIG_PYTHON" -m ziglang)
else
  zig=()
fi
if [ ${#zig[@]} -gt 0 ]; then
  run sdk/zig "${zig[@]}" build test
  test_new zig "${zig[@]}" build test
else
  lacks sdk/zig "zig (or WEIR_ZIG_PYTHON)"
fi
