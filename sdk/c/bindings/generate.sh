#!/usr/bin/env bash
# Writes the C bindings of both worlds anew, or checks (--check) that they are what the generator writes. WIT_BINDGEN names the generator.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

generator=${WIT_BINDGEN:-wit-bindgen}
wanted="wit-bindgen-cli 0.60.0"
found=$("$generator" --version)
if [ "$found" != "$wanted" ]; then
  echo "generate.sh: $generator is \"$found\" and must be \"$wanted\": see README.md" >&2
  exit 1
fi
for world in stateful-operator simple-operator; do
  "$generator" c ../../../wit --world "$world" --rename-world weir-wit --no-object-file --out-dir "$world" "$@"
done
