# What people and CI type. `make demo` needs nothing but Rust, a C compiler and make: the rest is set up as it goes.
#
# Everything lies in cargo's target folder (CARGO_TARGET_DIR is honoured); ready plugins beside the executable, where `weir` looks
# for them by name. There is one profile, release, so that nothing is compiled twice.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
WEIR := $(TARGET)/release/weir
PLUGINS_OUT := $(TARGET)/release/plugins
# Guests are built in workspaces of their own, into folders of their own: cargo locks a target folder while it works.
GUEST_TARGET := $(TARGET)/guests
PLUGINS := count window
# Crates outside of the workspace, each with a lock file of its own.
GUEST_MANIFESTS := plugins/Cargo.toml benches/guests/Cargo.toml $(wildcard tests/guests/Cargo.toml tests/guests/*/Cargo.toml examples/*/Cargo.toml examples/*/*/Cargo.toml sdk/rust/examples/*/Cargo.toml)

export CARGO_TARGET_DIR := $(TARGET)
export RUST_BACKTRACE ?= 1

.PHONY: build demo test wasm-target weir plugins check-format check-lints check-docs test-native test-plugins test-sdks bench-sdks bench-serve simulate clean-demo help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

build: weir plugins ## the command and the ready plugins

wasm-target: ## whatever rustc needs to build guests
	@tools/wasm-target.sh

weir:
	cargo build --release --package weir

plugins: weir wasm-target ## the ready plugins, beside the executable
	@mkdir -p $(PLUGINS_OUT)
	@for plugin in $(PLUGINS); do \
	  $(WEIR) plugin build plugins/$$plugin --target-dir $(GUEST_TARGET) --output $(PLUGINS_OUT)/$$plugin.wasm >/dev/null; \
	  echo "built $(PLUGINS_OUT)/$$plugin.wasm"; \
	done

demo: build ## flight delays by the hour, from data to table and checkpoints
	@examples/flight-delays/demo.sh $(WEIR) $(TARGET)/demo

clean-demo: ## forget what the demo made
	rm -rf $(TARGET)/demo

# In the order in which a mistake shows soonest.
test: check-format check-lints check-docs build test-native simulate test-plugins test-sdks ## everything that CI runs

check-format:
	cargo fmt --all --check
	for manifest in $(GUEST_MANIFESTS); do cargo fmt --all --check --manifest-path $$manifest; done

check-lints:
	cargo clippy --release --workspace --all-targets -- -D warnings
	CARGO_TARGET_DIR=$(GUEST_TARGET) cargo clippy --release --all-targets --manifest-path plugins/Cargo.toml -- -D warnings

check-docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps

test-native: build
	cargo test --release --workspace --no-fail-fast

# `test-native` runs a few seeds and every mutant; this runs many, on all cores, and prints how often each situation came up.
simulate: ## thousands of seeds of the simulations
	WEIR_JOB_SEEDS=$${WEIR_JOB_SEEDS:-5000} WEIR_PROTOCOL_SEEDS=$${WEIR_PROTOCOL_SEEDS:-5000} \
	  cargo test --release --package weir --lib every_seed_of_the -- --nocapture --test-threads 1

test-plugins:
	CARGO_TARGET_DIR=$(GUEST_TARGET) cargo test --release --workspace --no-fail-fast --manifest-path plugins/Cargo.toml

test-sdks: weir ## the SDKs in other languages than Rust, as far as their tools are there
	@WEIR=$(WEIR) tools/test-sdks.sh

bench-sdks: weir wasm-target ## one operator in each language: its size, how fast it starts and works
	@tools/bench_sdks.py --weir $(WEIR) --folder $(TARGET)/bench-sdks

# On a quiet machine: a quarter of an hour, and up to 25 GB of disk meanwhile.
bench-serve: build ## noisy neighbours on one server, and two thousand idle jobs
	@tools/bench_serve.py --weir $(WEIR) --folder $(TARGET)/bench-serve --neighbours --idle
