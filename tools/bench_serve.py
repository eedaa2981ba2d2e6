#!/usr/bin/env python3
"""Measures `weir serve`: what tenants do to each other, and what thousands of jobs take that have nothing to do.

    tools/bench_serve.py --neighbours [--rounds 3] [--seconds 10]   # four noisy neighbours, one after the other and all at once
    tools/bench_serve.py --idle 2000 [--tenants 20] [--minute 60]   # idle jobs: memory, CPU, a kill and a stop

Prints markdown tables for benches/README.md, which says what each column is; what happens meanwhile goes to standard error. Each run has a server of its
own, on a fresh store in a temporary folder. Linux only: memory and CPU time come from /proc.
"""

import argparse
import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORES = os.cpu_count()
TICKS = os.sysconf("SC_CLK_TCK")
GOOD = "good"
# How long the server may take for anything that is waited for.
PATIENCE_SECONDS = 900


def say(text):
    print(text, file=sys.stderr, flush=True)


def row(cells):
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


def head(cells):
    row(cells)
    row(["---"] + ["---:"] * (len(cells) - 1))


# ---- What /proc says ----


def cpu_ticks(process, children):
    """Time on a processor of a process, and, with `children`, of those of its children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11 : 15 if children else 13])


def family_seconds(process):
    """The same of a process and all its children, whether they live or not."""
    ticks = cpu_ticks(process, True)
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            ticks += sum(cpu_ticks(child, True) for child in listed.read_text().split())
    return ticks / TICKS


def machine_seconds():
    """How long all processors of the machine were busy, with the time that other machines took from this one."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + soft + steal) / TICKS


def status_number(process, name):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0


def by_thread(process):
    """Time on a processor by the name of threads; numbers in names are left out."""
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            text = (task / "stat").read_text()
            name = text[text.index("(") + 1 : text.rindex(")")].rstrip("0123456789-")
            fields = text.rsplit(")", 1)[1].split()
            found[name] = found.get(name, 0) + (int(fields[11]) + int(fields[12])) / TICKS
    return found


# ---- A server ----


class Refused(Exception):
    """What the server says to a request that it does not do."""


class Server:
    def __init__(self, weir, folder, arguments=()):
        self.weir, self.folder, self.arguments = weir, folder, list(arguments)
        self.log, self.here = folder / "serve.log", threading.local()
        self.process = self.port = None
        self.log_begins = 0
        self.start()
        self.token = (folder / "weir-admin-token").read_text().strip()

    def start(self):
        """Gives how many seconds passed until it listened."""
        began = time.monotonic()
        self.log_begins = self.log.stat().st_size if self.log.exists() else 0
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.weir, "serve", "--store", "file://./store", "--listen", "127.0.0.1:0", *self.arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "WEIR_CACHE": str(self.folder / "cache")},
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)),
            )
        self.here = threading.local()
        while True:
            lines = self.logged()
            found = [line for line in lines if "serving " in line and " on http://" in line]
            if found:
                self.port = int(found[0].rsplit("://127.0.0.1:", 1)[1].split()[0].strip("/\"'.,"))
                return time.monotonic() - began
            if self.process.poll() is not None:
                sys.exit("the server ended at once: " + "\n".join(lines))
            time.sleep(0.01)

    def logged(self):
        """The lines of its log since it was started last."""
        with open(self.log, "rb") as log:
            log.seek(self.log_begins)
            return log.read().decode(errors="replace").split("\n")[:-1]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Gives how many seconds it took to stop as it was told to."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_SECONDS)
        if code != 0:
            say(f"the server ended with {code}: {self.log.read_text(errors='replace')[-2000:]}")
        return time.monotonic() - began

    def ask(self, method, path, body=None, kind="application/json"):
        """One request. Each thread has a connection of its own."""
        if body is not None and kind == "application/json":
            body = json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": kind} if body is not None else {})
        for again in (True, False):
            connection = getattr(self.here, "connection", None)
            if connection is None:
                connection = self.here.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                said = answer.read()
                break
            except (http.client.HTTPException, OSError):
                # It hangs up on whoever says nothing for long.
                connection.close()
                self.here.connection = None
                if not again:
                    raise
        if answer.status >= 400:
            raise Refused(f"{method} {path}: {answer.status} {said.decode(errors='replace')[:600]}")
        return json.loads(said) if said else None

    def tenant(self, name, quotas=None):
        self.ask("POST", "/v1/tenants", {"name": name, "quotas": quotas})

    def push(self, tenant, name, component):
        self.ask("PUT", f"/v1/tenants/{tenant}/plugins/{name}/1.0.0", component, "application/wasm")

    def deploy(self, tenant, job, pipeline):
        self.ask("PUT", f"/v1/tenants/{tenant}/jobs/{job}", {"pipeline": pipeline})


def until(what, look):
    """Looks until there is something to see, and gives it."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if seen := look():
            return seen
        time.sleep(0.05)
    sys.exit(f"it never came to this: {what}")


# ---- Neighbours ----

GOOD_PIPELINE = """
name = "good"
[checkpoint]
interval = "200ms"
[source.made]
connector = "generator"
keys = 100000
[operator.op]
plugin = "count"
inputs = ["made"]
config = { format = "binary" }
[sink.none]
connector = "blackhole"
inputs = ["op"]
"""

# Restarts are as quick as they can be, and never end.
NOISY = """
name = "noisy"
[checkpoint]
interval = "1s"
tolerated_failures = 1000000
retain = 1
[restart]
attempts = 1000000
delay = "1ms"
max_delay = "1ms"
[source.made]
connector = "generator"
"""
HOSTILE = """
[operator.{name}]
plugin = "hostile"
parallelism = {parallelism}
inputs = ["made"]
config = {{ do = "{what}", in = "process" }}
limits = {{ memory = "4GiB", cpu = "2s" }}
[sink.{name}-none]
connector = "blackhole"
inputs = ["{name}"]
"""
DUMP = """rate = 1000
[operator.op]
plugin = "dump"
inputs = ["made"]
config = {{ mib = {mib} }}
limits = {{ state = "4GiB" }}
[sink.none]
connector = "blackhole"
inputs = ["made"]
"""


def leb(number):
    """A number as WebAssembly writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def section(number, content):
    return bytes([number]) + leb(len(content)) + content


def core_module(functions, nonce):
    """A module with much to compile. Another nonce, another module: nothing of it is in the cache."""

    def function(first):
        # The argument and one local, mixed 300 times.
        steps = ((nonce >> 6 * step & 0x3F if step < 5 else step % 60) + 1 & 0x3F for step in range(300))
        mixed = b"".join(b"\x20\x00\x20\x01\x7c\x42" + bytes([step]) + b"\x85\x22\x01\x21\x00" for step in steps) if first else MIXED
        code = b"\x01\x01\x7e" + mixed + b"\x20\x00\x0b"
        return leb(len(code)) + code

    bodies = function(True) + function(False) * (functions - 1)
    kinds = section(1, b"\x01\x60\x01\x7e\x01\x7e") + section(3, leb(functions) + bytes(functions))
    return b"\0asm\1\0\0\0" + kinds + section(10, leb(functions) + bodies)


MIXED = b"".join(b"\x20\x00\x20\x01\x7c\x42" + bytes([step % 60 + 1]) + b"\x85\x22\x01\x21\x00" for step in range(300))


def refused_component(hostile, functions, nonce):
    """A plugin that is compiled, at length, and then refused for what it says it is called."""
    word, other = b"hostile-describe=ok".ljust(32), b"hostile-describe=name".ljust(32)
    if hostile.count(word) != 1:
        sys.exit("tests/guests/hostile has no word that says what `describe` does")
    return hostile.replace(word, other) + section(1, core_module(functions, nonce))


class Loops:
    name, words = "loops", "endless loops in every operator"

    def __init__(self, bench):
        self.bench = bench
        # As many at once as would take the whole machine, in two operators.
        each = {"parallelism": max(CORES // 2, 1), "what": "spin"}
        self.pipeline = NOISY + "".join(HOSTILE.format(name=name, **each) for name in ("first", "second"))
        self.plugin = ("hostile", bench.guests["hostile"])

    def begin(self):
        server = self.bench.server
        server.tenant(self.name, self.quotas() if hasattr(self, "quotas") else None)
        server.push(self.name, *self.plugin)
        server.deploy(self.name, "noisy", self.pipeline)

    def end(self):
        self.bench.server.ask("DELETE", f"/v1/tenants/{self.name}")

    def counts(self):
        """What it has done so far."""
        run = (self.bench.server.ask("GET", f"/v1/tenants/{self.name}/jobs/noisy").get("run")) or {}
        return {"restarts": run.get("restarts", 0), "checkpoints": run.get("checkpoints", 0)}

    def did(self, deltas, seconds, usage):
        return f"{deltas['restarts'] / seconds:.1f} restarts/s"


class Bomb(Loops):
    name, words = "bomb", "a memory bomb"

    def __init__(self, bench):
        super().__init__(bench)
        self.pipeline = NOISY + HOSTILE.format(name="op", parallelism=2, what="hoard")


class Dump(Loops):
    name, words = "gigabyte", "a checkpoint of 1 GB each second"

    def __init__(self, bench):
        super().__init__(bench)
        # Old checkpoints go with every sixteenth.
        self.mib = max(min(1000, (shutil.disk_usage(bench.folder).free - (5 << 30)) // 18 >> 20), 50)
        self.pipeline = NOISY + DUMP.format(mib=self.mib)
        self.plugin = ("dump", bench.guests["dump"])

    def did(self, deltas, seconds, usage):
        return f"{usage['store_bytes'] / seconds / 1e6:.0f} MB/s in {deltas['checkpoints'] / seconds:.2f} checkpoints/s of {self.mib} MiB"


class Compile(Loops):
    name, words = "compile", "plugins that are refused after a long compilation, in a loop"
    # Two at once: more are not taken.
    THREADS = 2

    def __init__(self, bench):
        super().__init__(bench)
        self.stopping, self.threads, self.refused, self.nonce = threading.Event(), [], 0, 0
        self.lock, self.last = threading.Lock(), ""

    def begin(self):
        self.bench.server.tenant(self.name)
        self.stopping.clear()
        self.threads = [threading.Thread(target=self.push, daemon=True) for _ in range(self.THREADS)]
        for thread in self.threads:
            thread.start()

    def push(self):
        while not self.stopping.is_set():
            with self.lock:
                self.nonce += 1
                nonce = self.nonce
            component = refused_component(self.bench.guests["hostile"], self.bench.arguments.functions, nonce)
            try:
                self.bench.server.push(self.name, "refused", component)
                sys.exit("a plugin that cannot be taken was taken")
            except (Refused, OSError, http.client.HTTPException) as why:
                with self.lock:
                    self.refused += 1
                    self.last = str(why)

    def end(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE_SECONDS)
        if "No Such Name" not in self.last:
            say(f"refused for another reason: {self.last}")
        super().end()

    def counts(self):
        return {"refused": self.refused}

    def did(self, deltas, seconds, usage):
        return f"{deltas['refused'] / seconds:.2f} refused/s"


class Neighbours:
    KINDS = [Loops, Bomb, Dump, Compile]

    def __init__(self, server, folder, guests, count, arguments):
        self.server, self.folder, self.guests, self.arguments = server, folder, guests, arguments
        self.all = [kind(self) for kind in self.KINDS]
        server.tenant(GOOD)
        server.push(GOOD, "count", count)
        server.deploy(GOOD, "good", GOOD_PIPELINE)
        self.job = f"/v1/tenants/{GOOD}/jobs/good"
        until("the well-behaved job takes checkpoints", lambda: ((self.server.ask("GET", self.job)["run"] or {}).get("epoch") or 0) > 5)

    def look(self, active):
        job = self.server.ask("GET", self.job)
        return {
            "at": time.monotonic(),
            "machine": machine_seconds(),
            "server": family_seconds(self.server.process.pid),
            "usage": {tenant["name"]: tenant["usage"] for tenant in self.server.ask("GET", "/v1/tenants")},
            "records": next(node["records_in"] for node in job["nodes"] if node["node"] == "op"),
            "restarts": (job["run"] or {}).get("restarts", 0),
            "failed": (job["run"] or {}).get("failed", 0),
            "checkpoints": (job["run"] or {}).get("checkpoints", 0),
            "counts": {kind.name: kind.counts() for kind in active},
        }

    def measure(self, active):
        """One phase, in which these neighbours are at work."""
        took, answers, memory = {}, [], 0
        before = self.look(active)
        while time.monotonic() - before["at"] < self.arguments.seconds:
            asked = time.monotonic()
            run = self.server.ask("GET", self.job)["run"]
            answers.append((time.monotonic() - asked) * 1e3)
            if run and run["epoch"]:
                took.setdefault((run["generation"], run["epoch"]), run["checkpoint_us"] / 1e3)
            memory = max(memory, status_number(self.server.process.pid, "VmRSS") << 10)
            time.sleep(0.05)
        after = self.look(active)
        seconds = after["at"] - before["at"]

        def delta(name):
            return (after[name] - before[name]) / seconds

        def used(tenant, what):
            return after["usage"][tenant][what] - before["usage"].get(tenant, {}).get(what, 0)

        theirs = {kind.name: used(kind.name, "cpu_us") / 1e6 / seconds for kind in active}
        mine = used(GOOD, "cpu_us") / 1e6 / seconds
        server = delta("server")
        # What is charged is the time that turns last. On a machine with other work that is more than the time on a processor.
        charged = mine + sum(theirs.values())
        scale = min(server / charged, 1.0) if charged else 1.0
        mine, theirs = mine * scale, {name: used * scale for name, used in theirs.items()}
        did = []
        for kind in active:
            was, counts = before["counts"][kind.name], after["counts"][kind.name]
            deltas = {name: counts[name] - was[name] for name in counts}
            did.append(kind.did(deltas, seconds, {"store_bytes": used(kind.name, "store_bytes")}))
        return {
            "rate": delta("records"),
            "mine": mine,
            "theirs": theirs,
            "server": server,
            "scale": scale,
            "uncounted": server - mine - sum(theirs.values()),
            "outside": max(delta("machine") - server, 0.0),
            # The first one that is seen was before.
            "took": list(took.values())[1:],
            "answers": answers,
            "missed": delta("checkpoints") * seconds - len(took) + 1,
            "harm": after["restarts"] - before["restarts"] + after["failed"] - before["failed"],
            "memory": memory,
            "did": did,
        }

    def fair(self, quiet, loud):
        """What its fair share would give the well-behaved tenant in a phase, in records a second: see benches/README.md."""
        there = CORES - loud["outside"]
        share = there / (1 + len(loud["theirs"]))
        left = sum(max(share - used, 0.0) for used in loud["theirs"].values())
        return quiet["rate"] / quiet["mine"] * min(quiet["mine"], share + left)

    def phase(self, active):
        for kind in active:
            kind.begin()
        time.sleep(self.arguments.settle)
        measured = self.measure(active)
        for kind in active:
            kind.end()
        words = " + ".join(kind.name for kind in active) or "undisturbed"
        say(
            f"{words}: {measured['rate'] / 1e6:.2f} M records/s with {measured['mine']:.2f} cores, neighbours "
            f"{sum(measured['theirs'].values()):.2f}, uncounted {measured['uncounted']:.2f}, outside {measured['outside']:.2f} "
            f"({measured['scale']:.2f} of what was charged); checkpoints "
            f"{digits(quantile(measured['took'], 0.5))} / {digits(quantile(measured['took'], 0.99))} ms of {len(measured['took'])}, answers "
            f"{digits(quantile(measured['answers'], 0.5))} / {digits(quantile(measured['answers'], 1))} ms; "
            f"{', '.join(measured['did'])}"
        )
        if measured["harm"]:
            say(f"the well-behaved job started over or lost a checkpoint {measured['harm']} times")
        return measured

    def run(self):
        cases = [[kind] for kind in self.all] + [self.all]
        if self.arguments.only:
            cases = [case for case in cases if (case[0].name if len(case) == 1 else "all") in self.arguments.only.split(",")]
        rounds = [[] for _ in cases]
        quiets = [self.phase([])]
        for number in range(self.arguments.rounds):
            say(f"round {number + 1}, load {os.getloadavg()[0]:.1f}")
            for case, active in enumerate(cases):
                loud = self.phase(active)
                quiets.append(self.phase([]))
                # Before it and after it: whatever else the machine does changes slowly.
                quiet = {name: statistics.mean(each[name] for each in quiets[-2:]) for name in ("rate", "mine", "server")}
                loud["fair"] = self.fair(quiet, loud)
                # The same with all that the server does for it, also what is charged to nobody.
                whole = quiet | {"mine": quiet["server"]}
                loud["fair, whole"] = self.fair(whole, loud)
                loud["quiet p99"] = quantile(quiets[-2]["took"] + quiets[-1]["took"], 0.99)
                rounds[case].append(loud)
        self.table(cases, rounds, quiets)

    def table(self, cases, rounds, quiets):
        def median(of, look):
            return statistics.median(look(each) for each in of)

        print()
        head(
            ["neighbour", "records/s", "its fair share would give", "÷, median", "÷, worst", "÷ by process", "cores: its, theirs, uncounted, outside"]
            + ["checkpoint ms, median / p99 / longest", "p99 ÷ undisturbed, pooled", "worst round", "of how many", "lost", "answers of the API ms, median / longest", "peak MiB", "did"]
        )
        undisturbed = [took for quiet in quiets for took in quiet["took"]]

        def cells(of):
            took = [took for each in of for took in each["took"]]
            cores = [median(of, lambda each: each["mine"]), median(of, lambda each: sum(each["theirs"].values()))]
            cores += [median(of, lambda each: each["uncounted"]), median(of, lambda each: each["outside"])]
            times = " / ".join(digits(quantile(took, at)) for at in (0.5, 0.99, 1))
            answers = [answer for each in of for answer in each["answers"]]
            answers = " / ".join(digits(quantile(answers, at)) for at in (0.5, 1))
            return took, f"{median(of, lambda each: each['rate']) / 1e6:.2f} M", ", ".join(f"{part:.2f}" for part in cores), times, answers

        took, rate, cores, times, answers = cells(quiets)
        lost, peak = sum(each["harm"] for each in quiets), max(each["memory"] for each in quiets) >> 20
        row(["none", rate, "", "", "", "", cores, times, "", "", len(took), lost, answers, peak, ""])
        for active, of in zip(cases, rounds):
            took, rate, cores, times, answers = cells(of)
            ratios = [each["rate"] / each["fair"] for each in of]
            whole = statistics.median(each["rate"] / each["fair, whole"] for each in of)
            late = [quantile(each["took"], 0.99) / max(each["quiet p99"], 0.001) for each in of]
            pooled = quantile(took, 0.99) / max(quantile(undisturbed, 0.99), 0.001)
            lost, peak = sum(each["harm"] for each in of), max(each["memory"] for each in of) >> 20
            row(
                [active[0].words if len(active) == 1 else "all four", rate, f"{median(of, lambda each: each['fair']) / 1e6:.2f} M"]
                + [f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}", f"{whole:.2f}", cores, times, f"{pooled:.2f}", f"{max(late):.2f}"]
                + [len(took), lost, answers, peak, "; ".join(of[len(of) // 2]["did"])]
            )
        missed = sum(each["missed"] for each in quiets + [each for of in rounds for each in of])
        say(f"{missed:.0f} checkpoints went by unseen, of {len(undisturbed) + sum(len(each['took']) for of in rounds for each in of)} that were seen")


def quantile(values, at):
    """The value below which that part of all lies: the longest, if there are few."""
    values = sorted(values)
    return values[min(int(at * len(values)), len(values) - 1)] if values else 0.0


def digits(number):
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


# ---- Idle jobs ----

IDLE_PIPELINE = """
name = "{name}"
[checkpoint]
interval = "1s"
[source.lines]
connector = "file"
path = "lines"
format = "json"
follow = true
[operator.op]
plugin = "count"
inputs = [{{ from = "lines", key = "/key" }}]
[sink.out]
connector = "file"
path = "out-{name}"
inputs = ["op"]
format = "json"
"""


class Idle:
    def __init__(self, server, folder, count, arguments):
        self.server, self.folder, self.count, self.arguments = server, folder, count, arguments
        self.tenants = [f"idle-{number}" for number in range(arguments.tenants)]
        self.jobs = arguments.idle
        each, more = divmod(self.jobs, len(self.tenants))
        self.of = {tenant: each + (number < more) for number, tenant in enumerate(self.tenants)}

    def lines(self, tenant):
        return self.folder / tenant / "lines"

    def deploy(self):
        """Gives how many seconds it takes to bring all jobs, and until all of them run."""
        quotas = {"jobs": self.jobs, "subtasks": 4 * self.jobs}
        for tenant in self.tenants:
            self.lines(tenant).parent.mkdir()
            self.lines(tenant).write_text("".join(f'{{"key":"k{key}"}}\n' for key in range(10)))
            self.server.tenant(tenant, quotas)
            self.server.ask("PUT", f"/v1/tenants/{tenant}/grants", {"directory": str(self.lines(tenant).parent)})
            self.server.push(tenant, "count", self.count)
        began = time.monotonic()
        jobs = [(tenant, f"job-{number}") for tenant in self.tenants for number in range(self.of[tenant])]
        with ThreadPoolExecutor(self.arguments.clients) as pool:
            made = [pool.submit(self.server.deploy, tenant, job, IDLE_PIPELINE.format(name=job)) for tenant, job in jobs]
            for number, each in enumerate(made):
                each.result()
                if number % 500 == 499:
                    say(f"{number + 1} jobs are brought after {time.monotonic() - began:.0f} s")
        brought = time.monotonic() - began
        self.until_all_run({})
        return brought, time.monotonic() - began

    def epochs(self):
        """The newest checkpoint of each job that runs; 0 of one that has not made one since it was restored."""
        found = {}
        for tenant in self.tenants:
            for job in self.server.ask("GET", f"/v1/tenants/{tenant}/jobs"):
                if job["state"] == "failed":
                    sys.exit(f"job {job['name']} of {tenant} failed: {job['error']}")
                if job["state"] == "running":
                    found[tenant, job["name"]] = job["epoch"] or 0
        return found

    def until_all_run(self, after=None):
        """Waits until every job runs and, with `after`, has a newer checkpoint than that says."""

        def look():
            epochs = self.epochs()
            there = len(epochs) if after is None else sum(epoch > after.get(job, 0) for job, epoch in epochs.items())
            if there < self.jobs:
                time.sleep(0.2)
            return there == self.jobs

        until(f"all {self.jobs} jobs run", look)

    def until_quiet(self):
        """Waits until the server does no longer do less and less, for half a minute at most."""
        last = None
        for _ in range(6):
            before = family_seconds(self.server.process.pid)
            time.sleep(5)
            used = family_seconds(self.server.process.pid) - before
            if used < 0.1 or last is not None and used > 0.8 * last:
                return
            last = used

    def rest(self, when, seconds):
        """What all jobs take while nothing comes."""
        self.until_quiet()
        process = self.server.process.pid
        objects = sum(1 for _ in (self.folder / "store").rglob("*"))
        threads, before, began = by_thread(process), family_seconds(process), time.monotonic()
        time.sleep(seconds)
        after, passed = family_seconds(process), time.monotonic() - began
        busy = {name: used - threads.get(name, 0) for name, used in by_thread(process).items()}
        busy = sorted(((used, name) for name, used in busy.items() if used > 0), reverse=True)[:5]
        new = sum(1 for _ in (self.folder / "store").rglob("*")) - objects
        say(f"{when}: by thread, seconds: {', '.join(f'{name} {used:.2f}' for used, name in busy) or 'none'}; {new} new objects")
        return self.size() | {"cpu": (after - before) / passed, "objects": new}

    def size(self):
        process = self.server.process.pid
        files = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
        return {"rss": status_number(process, "VmRSS") << 10, "threads": status_number(process, "Threads"), "files": files}

    def run(self):
        empty = self.rest("empty", 5)
        brought, running = self.deploy()
        say(f"brought in {brought:.1f} s, all run after {running:.1f} s")
        epochs = self.epochs()
        first = self.rest("deployed", self.arguments.minute)
        self.server.kill()
        listening = self.server.start()
        began = time.monotonic()
        # A job counts as running before its state is there; the log says when it is.
        until("all jobs are restored", lambda: sum(": restored job=" in line for line in self.server.logged()) >= self.jobs)
        self.until_all_run()
        back = time.monotonic() - began
        say(f"after a kill it listens after {listening:.1f} s, and all jobs are restored {back:.1f} s later")
        second = self.rest("after a kill", self.arguments.minute)

        epochs = self.epochs()
        for tenant in self.tenants:
            with open(self.lines(tenant), "a", encoding="utf-8") as file:
                file.write('{"key":"k0"}\n')
        began = time.monotonic()
        self.until_all_run(epochs)
        counted = time.monotonic() - began
        say(f"a line that comes to all is in a checkpoint of each after {counted:.1f} s")
        stopped = self.server.stop()
        say(f"stopped in {stopped:.1f} s")
        wrong = self.wrong()

        def mib(number):
            return f"{number / (1 << 20):.2f}"

        print()
        head([f"{self.jobs:,} jobs of {len(self.tenants)} tenants", "MiB", "MiB a job over the empty server", "cores", "µs of CPU a job and second", "threads", "files", "new objects"])
        row(["empty", mib(empty["rss"]), "", f"{empty['cpu']:.4f}", "", empty["threads"], empty["files"], empty["objects"]])
        for when, measured in (("deployed", first), ("after a kill", second)):
            each = (measured["rss"] - empty["rss"]) / self.jobs
            idle = measured["cpu"] / self.jobs * 1e6
            row([when, mib(measured["rss"]), mib(each), f"{measured['cpu']:.4f}", f"{idle:.1f}", measured["threads"], measured["files"], measured["objects"]])
        print()
        head(["", "seconds", "ms a job"])
        for what, took in (
            (f"all brought, by {self.arguments.clients} clients at once", brought),
            ("until all of them run and have a checkpoint", running),
            ("killed: until it listens", listening),
            ("from there until all are restored", back),
            ("one line to each: until it is in a checkpoint of all", counted),
            ("stop, each with a last checkpoint", stopped),
        ):
            row([what, f"{took:.1f}", f"{took / self.jobs * 1e3:.1f}"])
        if wrong:
            sys.exit(f"{len(wrong)} jobs have not counted what came, or more than once: {wrong[:3]}")

    def wrong(self):
        """Jobs whose output is not eleven lines: ten, and one after the kill."""
        wrong = []
        for tenant in self.tenants:
            for number in range(self.of[tenant]):
                out = self.folder / tenant / f"out-job-{number}"
                lines = [line for file in out.glob("epoch-*/part-*") for line in file.read_text().splitlines()]
                if len(lines) != 11:
                    wrong.append((tenant, number, len(lines)))
        return wrong


# ---- The command ----


def build_guest(weir, project, folder):
    output = folder / f"{project.name}.wasm"
    command = [weir, "plugin", "build", project, "--target-dir", folder / "guests", "--output", output]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{project} does not build: {done.stderr}")
    return output.read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", type=Path, default=ROOT / "target/release/weir", help="the command; `plugins` lies beside it")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/bench-serve", help="where guests and servers go; 25 GB for --neighbours")
    parser.add_argument("--neighbours", action="store_true", help="what noisy tenants do to a well-behaved one")
    parser.add_argument("--rounds", type=int, default=3, help="of all neighbours")
    parser.add_argument("--seconds", type=float, default=10, help="how long each phase of --neighbours is measured")
    parser.add_argument("--settle", type=float, default=4, help="how long each waits before that")
    parser.add_argument("--functions", type=int, default=1000, help="how much there is to compile in a plugin that is refused")
    parser.add_argument("--only", default="", help="some of loops,bomb,gigabyte,compile,all")
    parser.add_argument("--idle", type=int, nargs="?", const=2000, help="how many idle jobs")
    parser.add_argument("--tenants", type=int, default=20, help="of how many tenants")
    parser.add_argument("--minute", type=float, default=60, help="for how many seconds nothing comes")
    parser.add_argument("--clients", type=int, default=4, help="how many bring jobs at once")
    arguments = parser.parse_args()
    if not arguments.neighbours and arguments.idle is None:
        parser.error("--neighbours, --idle, or both")
    if arguments.rounds < 1 or arguments.seconds <= 0 or arguments.tenants < 1 or (arguments.idle or 1) < arguments.tenants and arguments.idle is not None:
        parser.error("at least one round, some seconds, one tenant, and a job for each tenant")
    if not arguments.weir.is_file():
        parser.error(f"{arguments.weir} is not there: make build")
    weir = arguments.weir.resolve()
    count = (weir.parent / "plugins/count.wasm").read_bytes()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    base = arguments.folder.resolve()

    def with_server(more, work):
        with tempfile.TemporaryDirectory(prefix="serve-", dir=base, ignore_cleanup_errors=True) as folder:
            folder = Path(folder)
            server = Server(weir, folder, more)
            try:
                work(server, folder)
            finally:
                if server.process.poll() is None:
                    server.kill()
                shutil.copy(server.log, base / "serve.log")

    # Ended from outside, it still takes its server with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))

    if arguments.neighbours:
        projects = {"hostile": ROOT / "tests/guests/hostile", "dump": ROOT / "benches/guests/dump"}
        guests = {name: build_guest(weir, project, base) for name, project in projects.items()}
        with_server([], lambda server, folder: Neighbours(server, folder, guests, count, arguments).run())
    if arguments.idle is not None:
        more = ["--instances", str(2 * arguments.idle), "--grace", "10m"]
        with_server(more, lambda server, folder: Idle(server, folder, count, arguments).run())


if __name__ == "__main__":
    main()
