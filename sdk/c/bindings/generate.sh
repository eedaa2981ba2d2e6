#!/usr/bin/env bash
# Writes the C bindings of both worlds anew, or checks (--check) that they are what the generator writes.
# WEIR_WIT_BINDGEN names the generator; else it is looked for in PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

generator=${WEIR_WIT_BINDGEN:-wit-bindgen}
wanted="wit-bindgen-cli 0.63.0"
found=$("$generator" --version)
if [ "$found" != "$wanted" ]; then
  echo "generate.sh: $generator is \"$found\" and must be \"$wanted\": see README.md" >&2
  exit 1
fi
for world in stateful-operator simple-operator; do
  RUST_BACKTRACE=0 "$generator" c ../../../wit --world "$world" --rename-world weir-wit --no-object-file --out-dir "$world" "$@"
done
