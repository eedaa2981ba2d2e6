#!/usr/bin/env python3
"""Measures the same operator in each language: `tally` of sdk/conformance, the keyed count in windows.

Prints a markdown table: size of the component, processor time to compile it, time to start, nanoseconds a record. All languages take the same input,
which is made here, and take turns in several rounds, so that whatever else the machine does meets all of them; each figure is the median of its rounds.

Tools are looked for as `weir plugin build` does it. A language whose tools are not there is left out, with a line that says what is missing.

    tools/bench_sdks.py [--weir target/release/weir] [--rounds 5] [--only rust,go] > table.md
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What the row is called, and the project below `sdk`.
LANGUAGES = {
    "rust": ("Rust", "rust/examples/tally"),
    "rust-windows": ("Rust, with `Windows`", "rust/examples/tally-windows"),
    "c": ("C", "c/examples/tally"),
    "cpp": ("C++", "c/examples/tally-cpp"),
    "zig": ("Zig", "zig/examples/tally"),
    "assemblyscript": ("AssemblyScript, by hand", "assemblyscript/tally"),
    "go": ("Go", "go/examples/tally"),
    "js": ("JavaScript", "js/examples/tally"),
    "python": ("Python", "python/examples/tally"),
}

MINUTES = 5
LATE_SECONDS = 5
SMALL, LARGE = 64, 1024
# With many keys a window of a key has four records, so that its end costs as much as they do; with few it has forty.
MANY, FEW = 10_000, 1_000


class LeftOut(Exception):
    """Why a language is not measured."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, **options):
    """Runs a command and gives what it says and the seconds of processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, cpu


def write_input(path, records, keys):
    """Records in their order but for up to five seconds, over five windows, each key as often as any other."""
    step = MINUTES * 60_000_000 // records
    number = 1
    with open(path, "w", encoding="utf-8") as file:
        for record in range(records):
            number = (number * 6364136223846793005 + 1442695040888963407) % 2**64
            key = (number >> 33) % keys
            at = max(record * step - (number >> 20) % (LATE_SECONDS * 1_000_000), 0)
            minute, second, micros = at // 60_000_000, at // 1_000_000 % 60, at % 1_000_000
            file.write(f'{{"key":"k{key:07}","at":"2026-01-01T00:{minute:02}:{second:02}.{micros:06}Z","n":{record}}}\n')


class Bench:
    def __init__(self, weir, folder, records, seconds):
        self.weir, self.folder, self.records, self.seconds = weir, folder, records, seconds
        folder.mkdir(parents=True, exist_ok=True)
        for keys in (MANY, FEW):
            write_input(self.input(keys), records, keys)

    def input(self, keys):
        return self.folder / f"{keys}-keys.jsonl"

    def component(self, language):
        return self.folder / f"{language}.wasm"

    def build(self, language):
        project = ROOT / "sdk" / LANGUAGES[language][1]
        output = self.component(language)
        try:
            if language != "assemblyscript":
                # Guests of one target folder share what they depend on.
                target = self.folder / "guests"
                run([self.weir, "plugin", "build", project, "--target-dir", target, "--output", output])
                return
            if not (project / "node_modules").is_dir():
                raise LeftOut(f"its packages are not there: npm ci in {project.relative_to(ROOT)}")
            run(["node", "build.mjs"], cwd=project)
            module = project / "build/module.wasm"
            run([self.weir, "plugin", "componentize", module, "--world", "stateful-operator", "--output", output])
        except FileNotFoundError as error:
            raise LeftOut(f"{error.filename} is not there") from error
        except subprocess.CalledProcessError as error:
            raise LeftOut(error.stderr.strip()) from error

    def inspect(self, language, cache):
        environment = {**os.environ, "WEIR_CACHE": str(cache)}
        return run([self.weir, "plugin", "inspect", self.component(language)], env=environment)[1]

    def bench(self, language, cache, keys, batches):
        said, _ = run(
            [self.weir, "plugin", "bench", self.component(language), "--json"]
            + ["--input", self.input(keys), "--format", "json", "--key", "/key", "--event-time", "/at"]
            + ["--out-of-orderness", f"{LATE_SECONDS}s", "--records-max", str(self.records)]
            + ["--batches", ",".join(map(str, batches)), "--seconds", str(self.seconds)],
            env={**os.environ, "WEIR_CACHE": str(cache)},
        )
        said = json.loads(said)
        if said["records"] != self.records:
            raise AssertionError(f"{said['records']} records were used")
        return said

    def measure(self, language):
        """One round of one language."""
        cache = self.folder / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        # What the second one takes is not compiling.
        compiling = self.inspect(language, cache) - self.inspect(language, cache)
        many, few = self.bench(language, cache, MANY, [SMALL, LARGE]), self.bench(language, cache, FEW, [LARGE])
        small, large = many["sizes"]
        return {
            "ratios": (round(many["output_ratio"], 9), round(few["output_ratio"], 9)),
            "compile": max(compiling, 0.0),
            "start": many["start"]["start_nanos"] / 1e6,
            "open": many["start"]["open_nanos"] / 1e6,
            "record": large["record_nanos"],
            "hand-over": large["hand_over_nanos"],
            "guest": large["guest_nanos"],
            "emit": large["emit_nanos"],
            "small": small["record_nanos"],
            "few": few["sizes"][0]["record_nanos"],
        }


def size(count):
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} KB"


def digits(number):
    """About three digits."""
    if number >= 1000:
        return f"{round(number, -1):,.0f}"
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", type=Path, default=ROOT / "target/release/weir", help="the command")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/bench-sdks", help="where components and the input go")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=1, help="how long each batch size is measured in a round, at least three passes")
    parser.add_argument("--only", default="", help=f"some of {','.join(LANGUAGES)}")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name] or list(LANGUAGES)
    if unknown := [name for name in only if name not in LANGUAGES]:
        parser.error(f"no such language: {', '.join(unknown)}")
    if arguments.rounds < 1 or arguments.records < 1:
        parser.error("at least one round and one record")
    if not arguments.weir.is_file():
        parser.error(f"{arguments.weir} is not there: make weir")
    bench = Bench(arguments.weir.resolve(), arguments.folder.resolve(), arguments.records, arguments.seconds)

    built = []
    for language in only:
        say(f"{LANGUAGES[language][0]}: building")
        try:
            bench.build(language)
            built.append(language)
        except LeftOut as why:
            say(f"{LANGUAGES[language][0]}: left out. {why}")
    if not built:
        sys.exit("nothing was built")

    rounds = {language: [] for language in built}
    for number in range(arguments.rounds):
        for language in built:
            try:
                rounds[language].append(bench.measure(language))
            except subprocess.CalledProcessError as error:
                sys.exit(f"{LANGUAGES[language][0]}: {error.stderr.strip()}")
            last = rounds[language][-1]
            load = os.getloadavg()[0]
            say(f"round {number + 1}, {LANGUAGES[language][0]}: {last['record']:.0f} ns a record, load {load:.1f}")

    # They have to do the same.
    ratios = {measured["ratios"] for each in rounds.values() for measured in each}
    if len(ratios) != 1:
        sys.exit(f"the languages emit differently many records for each that comes in: {sorted(ratios)}")

    median = {
        language: {name: statistics.median(measured[name] for measured in each) for name in each[0] if name != "ratios"}
        for language, each in rounds.items()
    }
    print("| | component | compile, once | start | of it, open | ns a record | hand-over | guest | emit | batches of 64 | 1,000 keys |")
    print("| --- |" + " ---: |" * 10)
    for language in sorted(built, key=lambda language: median[language]["record"]):
        of = median[language]
        cells = [LANGUAGES[language][0], size(bench.component(language).stat().st_size)]
        cells += [f"{digits(of['compile'])} s", f"{digits(of['start'])} ms", f"{digits(of['open'])} ms"]
        cells += [digits(of[name]) for name in ("record", "hand-over", "guest", "emit", "small", "few")]
        print(f"| {' | '.join(cells)} |")
    many, few = ratios.pop()
    say(f"{arguments.rounds} rounds of {arguments.records:,} records, of which come {many:.3f} with {MANY:,} keys, and {few:.3f} with {FEW:,}")


if __name__ == "__main__":
    main()
