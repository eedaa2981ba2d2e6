#!/usr/bin/env bash
# Makes `cargo build --target wasm32-unknown-unknown` possible, so that guests can be built.
#
# In this order, stopping at the first that works:
#   1. the active rustc has the target: nothing to do;
#   2. `rustup target add wasm32-unknown-unknown`;
#   3. a complete toolchain of Debian's packages, unpacked into a cache folder (no root needed, nothing is installed), with
#      the standard library for WebAssembly built once and put where that rustc looks for it.
# The result of 3 is one file to use: `RUSTC=<cache>/bin/rustc`; `weir plugin build` finds it there by itself.
#
# It may be run again at any time, also twice at once, and goes on where it was interrupted.
set -euo pipefail

TARGET=wasm32-unknown-unknown
# The oldest rustc that the SDK and its dependencies are built with (as x * 1000 + y).
OLDEST=1090

usage() {
  cat <<TEXT
usage: tools/wasm-target.sh [--cached] [--print]

  --cached  go to step 3 at once: unpack Debian's toolchain into the cache even if another would do
  --print   print nothing but the path of a rustc that has the target, on standard output

Environment:
  RUSTC               the rustc that counts as active (default: rustc in PATH)
  WEIR_CACHE          the cache folder (default: \$XDG_CACHE_HOME/weir or ~/.cache/weir)
  WEIR_RUSTUP_SECONDS how long rustup may take (default: 180)
TEXT
}

force_cached=false
print=false
for argument in "$@"; do
  case "$argument" in
    --cached) force_cached=true ;;
    --print) print=true ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

say() { echo "wasm-target: $*" >&2; }
die() {
  echo "wasm-target: error: $1" >&2
  shift
  for line in "$@"; do echo "  help: $line" >&2; done
  exit 1
}

# Whether a rustc can build for the target: its standard library for it is there.
has_target() {
  local folder
  folder=$("$1" --print target-libdir --target "$TARGET" 2>/dev/null) || return 1
  compgen -G "$folder/libstd-*.rlib" >/dev/null
}

finish() {
  local rustc=$1 how=$2
  say "ready: $how"
  if $print; then echo "$rustc"; fi
  exit 0
}

active=${RUSTC:-rustc}
command -v cargo >/dev/null || die "there is no cargo" "install Rust with rustup"
command -v "$active" >/dev/null || die "there is no rustc named '$active'" "install Rust with rustup, or set RUSTC"

if ! $force_cached; then
  # 1. As it should be.
  if has_target "$active"; then
    finish "$(command -v "$active")" "the active rustc has $TARGET: cargo build --release --target $TARGET"
  fi

  # 2. The usual way. Offline it fails at once; a network that swallows packets is given up by the clock.
  if command -v rustup >/dev/null && [ -z "${RUSTC:-}" ]; then
    say "rustup target add $TARGET"
    if RUSTUP_MAX_RETRIES=1 timeout "${WEIR_RUSTUP_SECONDS:-180}" rustup target add "$TARGET" >&2 && has_target "$active"; then
      finish "$(command -v "$active")" "the active rustc now has $TARGET: cargo build --release --target $TARGET"
    fi
    say "rustup could not add it; trying Debian's packages"
  fi
fi

# 3. Debian's packages, unpacked.
cache=${WEIR_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or WEIR_CACHE}/.cache}/weir}/wasm-toolchain
case "$cache" in
  *[\'\"\ \$\`\\]*) die "the cache folder '$cache' has a blank or a quote in its path" "set WEIR_CACHE to another folder" ;;
  /*) ;;
  *) cache=$PWD/$cache ;;
esac
rustc=$cache/bin/rustc
remedy=(
  "on a machine that is online: rustup target add $TARGET"
  "or install a rustc of your distribution that has the target, and set RUSTC to it"
)
for tool in apt-get apt-cache dpkg dpkg-deb flock; do
  command -v "$tool" >/dev/null || die "rustc has no target $TARGET, and this machine has no $tool to get it from Debian" "${remedy[@]}"
done

mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || { say "waiting for another run that fills $cache"; flock 9; }

use() { finish "$rustc" "source $cache/env (or set RUSTC=$rustc), then: cargo build --release --target $TARGET"; }
if [ -f "$cache/env" ] && has_target "$rustc"; then use; fi
rm -f "$cache/env"

# Package lists: the system's where they know the packages, else lists of our own, which need no root.
options=(-qq -o APT::Sandbox::User=root -o Debug::NoLocking=true -o APT::Get::List-Cleanup=false)
candidate() { apt-cache "${options[@]}" policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v '^(none)$' || true; }
version_number() { sed -E 's/^[0-9]+://; s/^([0-9]+)\.([0-9]+).*/\1 \2/' <<<"$1" | awk '{ print $1 * 1000 + $2 }'; }
usable() { [ -n "$1" ] && [ "$(version_number "$1")" -ge "$OLDEST" ]; }
own_lists() {
  say "apt-get update, into $cache/apt"
  mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
  options+=(-o Dir::State="$cache/apt" -o Dir::State::Lists="$cache/apt/lists" -o Dir::Cache="$cache/apt"
    -o Dir::State::status=/var/lib/dpkg/status)
  apt-get "${options[@]}" update >&2 || say "apt-get update had errors"
}

fetch() {
  local version library llvm number more
  version=$(candidate rustc-web)
  if ! usable "$version"; then return 1; fi
  library=libstd-rust-web-$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$version")
  llvm=$(apt-cache "${options[@]}" show "$library=$version" | sed -n 's/^Depends:.*\(libllvm[0-9]*\).*/\1/p' | head -n 1)
  number=${llvm#libllvm}
  [ -n "$number" ] || return 1
  # What LLVM itself needs and this machine lacks, found by asking what an installation would fetch.
  more=$(apt-get "${options[@]}" --print-uris --no-install-recommends install "$llvm" "lld-$number" 2>/dev/null |
    awk '{ print $2 }' | sed 's/_.*//' | grep -vxE "$llvm|lld-$number" || true)
  say "fetching rustc $version and lld-$number from Debian (140 MB)"
  rm -rf "$cache/debs" && mkdir -p "$cache/debs"
  # shellcheck disable=SC2086 # $more is a list
  (cd "$cache/debs" && apt-get "${options[@]}" download \
    "rustc-web=$version" "$library=$version" "libstd-rust-web-dev=$version" "rust-web-src=$version" \
    "$llvm" "lld-$number" $more >&2) || return 1
  touch "$cache/debs/complete"
}

if [ ! -f "$cache/unpacked" ]; then
  if [ ! -f "$cache/debs/complete" ]; then
    fetch || { own_lists && fetch; } ||
      die "this Debian offers no rustc-web of at least version 1.$((OLDEST % 1000)) (found: '$(candidate rustc-web)')" "${remedy[@]}"
  fi
  say "unpacking into $cache/root"
  rm -rf "$cache/root" && mkdir -p "$cache/root"
  for package in "$cache"/debs/*.deb; do
    # Of the sources only the standard library is wanted: that is a sixth of them.
    dpkg-deb --fsys-tarfile "$package" |
      tar -x -C "$cache/root" --no-same-owner --anchored --no-wildcards-match-slash --exclude='./usr/src/rustc-*/src' \
        --exclude='./usr/src/rustc-*/compiler' --exclude='./usr/share/doc' --exclude='./usr/share/man'
  done
  touch "$cache/unpacked"
  rm -rf "$cache/debs" "$cache/apt"
fi

root=$cache/root/usr
libraries=$(dirname "$(find "$root/lib" -name 'librustc_driver-*.so' | head -n 1)")
lld=$(find "$root"/lib/llvm-*/bin -name lld | head -n 1)
host=$(cd "$root/lib/rustlib" && ls -d *-linux-* | head -n 1)

# Both programs find their libraries by a wrapper, so that no variable leaks into cargo or the C compiler.
wrapper() {
  mkdir -p "$(dirname "$1")"
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec %s "$@"\n' "$libraries" "$2" >"$1.new"
  chmod +x "$1.new"
  mv "$1.new" "$1"
}
wrapper "$rustc" "$root/bin/rustc"
wrapper "$root/lib/rustlib/$host/bin/rust-lld" "$lld"
"$rustc" -V >/dev/null || die "the unpacked rustc does not run" "remove $cache and run this again; what is missing is named above"

# The standard library for the target: built once by cargo from the sources, then put into the toolchain. A guest
# is built as with any rustc after that, and does not spend 25 seconds on it in each target folder.
say "building the standard library for $TARGET (half a minute)"
rm -rf "$cache/std" && mkdir -p "$cache/std/src"
printf '[package]\nname = "empty"\nversion = "0.0.0"\nedition = "2021"\n[lib]\n[workspace]\n[profile.release]\npanic = "abort"\n' \
  >"$cache/std/Cargo.toml"
: >"$cache/std/src/lib.rs"
(cd "$cache/std" && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS -u CARGO_BUILD_RUSTFLAGS -u RUSTC_WRAPPER RUSTC="$rustc" RUSTC_BOOTSTRAP=1 \
  cargo build --quiet --release --target "$TARGET" --target-dir "$cache/std/target" -Zbuild-std=std,panic_abort >&2) ||
  die "the standard library could not be built" "see cargo's message above; it reads the crates of the standard library from $root/src"
into=$root/lib/rustlib/$TARGET
rm -rf "$into" "$into.new" && mkdir -p "$into.new/lib"
for library in "$cache/std/target/$TARGET/release/deps"/*.rlib; do
  case "$library" in */libempty-*) ;; *) cp "$library" "$into.new/lib/" ;; esac
done
mv "$into.new" "$into"
rm -rf "$cache/std"
has_target "$rustc" || die "the toolchain in $cache has no $TARGET after all" "remove $cache and run this again"

printf "export RUSTC='%s'\n" "$rustc" >"$cache/env.new"
mv "$cache/env.new" "$cache/env"
use
