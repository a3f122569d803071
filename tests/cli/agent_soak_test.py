"""An agent lives through some hundreds of sessions of two jobs, which are killed or end well, side
by side. It commits what they had captured, and its memory, descriptors and threads stay bounded.

    agent_soak_test.py TAILRACE DRAIN_SESSION [LIVES]

TAILRACE_SEED replays a run's choices (not its instants).
"""

import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TAILRACE, SESSION = sys.argv[1:3]
LIVES = int(sys.argv[3]) if len(sys.argv) > 3 else 320
ROUNDS = 8  # after each of them the agent is measured, at rest
LONGEST_S = 60
MORE_KIB, MORE_DESCRIPTORS = 4096, 4  # than after the second round; a client may just have gone
JOBS = ("left", "right")
COMMITTED = re.compile(r"epoch \d+ of run \d+ of \w+ in .*: committed$", re.MULTILINE)


class Soak:
    def __init__(self, top, seed):
        self.top, self.seed = pathlib.Path(top), seed
        self.local = self.top / "local"
        self.lives_left_to_it = []
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TAILRACE_")}
        self.environment |= {
            "TAILRACE_LOCAL_DIR": str(self.local),
            "TAILRACE_RECORD": "no",
            "TAILRACE_BUFFER_BYTES": "1MiB",
            "TAILRACE_KEEP_SHARED": "2",
            "TAILRACE_LOG": "error",
            # In a build with the address sanitizer: freed memory that it keeps would look like a leak.
            "ASAN_OPTIONS": "quarantine_size_mb=4",
        }
        with open(self.top / "agent", "wb") as output:
            self.agent = subprocess.Popen(
                [TAILRACE, "agent"],
                env=self.environment | {"TAILRACE_LOG": "info"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.until(lambda: self.ask("status")[0] in (0, 1), "an agent listening")

    def until(self, condition, what):
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            if time.monotonic() > deadline or self.agent.poll() is not None:
                said = (self.top / "agent").read_text(errors="replace")
                sys.exit(f"FAILED: {what} did not come within {LONGEST_S} s; agent:\n{said}")
            time.sleep(0.005)

    def tool(self, *words):
        done = subprocess.run(
            [TAILRACE, *map(str, words)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        return done.returncode, done.stdout or done.stderr

    def ask(self, action):
        return self.tool("agent", action, "--json")

    def session(self, job, *words, **options):
        command = [SESSION, *words, f"name={job}", f"shared_dir={self.top / job}"]
        return subprocess.Popen(
            command,
            env=self.environment | options.pop("env", {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def life(self, job, chance):
        """A session that restores, or one that saves some epochs and is killed with all or some of
        them on their way."""
        if chance.random() < 0.15 and (self.top / job).is_dir():
            with self.session(job, "restore") as process:
                said = process.stdout.read()
            if process.returncode not in (0, 1) or "wrong" in said:
                sys.exit(f"FAILED: {job}: {said}")
            return
        epochs = chance.choice([1, 2, 3])
        # Saves wait for a place in the queue; so the cap decides how much is left for the agent.
        cap = chance.choice(["0", "8MiB", "40MiB"])
        env = {"TAILRACE_QUEUE_EPOCHS": "4", "TAILRACE_BANDWIDTH_CAP": cap}
        # A busy machine gives the session the time to flush all, and the job's next one that to flush
        # the rest before the agent does. Here neither can: this one flushes nothing, the next one waits.
        left_to_the_agent = chance.random() < 0.25
        if left_to_the_agent:
            env["TAILRACE_SHARED_EVERY"] = "100"
        with self.session(job, "save", str(epochs), env=env) as process:
            for _ in range(epochs):
                if "saved" not in (line := process.stdout.readline()):
                    process.kill()
                    sys.exit(f"FAILED: {job}: {line}")
            time.sleep(chance.choice([0, chance.uniform(0, 0.05)]))
            process.kill()
        if left_to_the_agent:
            self.lives_left_to_it.append(job)
            self.ask("drain")

    def lives(self, job, number, count):
        chance = random.Random(f"{self.seed} {job} {number}")
        for _ in range(count):
            self.life(job, chance)

    def measure(self):
        """The agent's memory of its own in KiB, its descriptors and threads, when it is at rest."""
        self.until(lambda: self.ask("drain")[0] == 0, "the end of the agent's work")
        process = pathlib.Path("/proc", str(self.agent.pid))
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        kib = int(status["RssAnon"].split()[0])
        return kib, len(os.listdir(process / "fd")), int(status["Threads"])

    def run(self):
        seen = []
        for number in range(ROUNDS):
            count = LIVES // ROUNDS // len(JOBS)
            with concurrent.futures.ThreadPoolExecutor(len(JOBS)) as pool:
                list(pool.map(lambda job: self.lives(job, number, count), JOBS))  # noqa: B023
            seen.append(self.measure())
            print(
                f"{(number + 1) * count * len(JOBS)} sessions: {seen[-1][0]} KiB of its own, "
                f"{seen[-1][1]} descriptors, {seen[-1][2]} threads",
                flush=True,
            )
        first, last = seen[1], seen[-1]
        bounds = first[0] + MORE_KIB, first[1] + MORE_DESCRIPTORS, first[2]
        if any(found > bound for found, bound in zip(last, bounds, strict=True)):
            sys.exit(f"FAILED: the agent has grown from {first} to {last}")
        committed = len(COMMITTED.findall((self.top / "agent").read_text(errors="replace")))
        left = len(self.lives_left_to_it)
        print(f"{committed} epochs committed by the agent, {left} of which only it could", flush=True)
        if left < LIVES // 8:
            sys.exit("FAILED: that is too little to have tested anything")
        if committed < left:
            sys.exit("FAILED: the agent has not committed what was left to it")
        for job in JOBS:
            status, said = self.tool("ls", "--json", self.top / job)
            epochs = json.loads(said)["epochs"]
            if status != 0 or not any(epoch["state"] == "complete" for epoch in epochs):
                sys.exit(f"FAILED: {job}: {said}")
            status, said = self.tool("verify", self.top / job, "newest")
            if status != 0:
                sys.exit(f"FAILED: {job}: {said}")

    def end(self):
        self.agent.send_signal(signal.SIGTERM)
        try:
            self.agent.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self.agent.kill()
            sys.exit("FAILED: the agent did not end")
        if self.agent.returncode != 0:
            sys.exit(f"FAILED: the agent's exit status is {self.agent.returncode}")


def main():
    seed = os.environ.get("TAILRACE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"TAILRACE_SEED={seed}", flush=True)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    top = tempfile.mkdtemp(prefix="tailrace-soak-", dir=memory)
    soak = None
    try:
        soak = Soak(top, seed)
        soak.run()
        soak.end()
        print("passed")
    finally:
        if soak is not None and soak.agent.poll() is None:
            soak.agent.kill()
            soak.agent.wait()
        shutil.rmtree(top, ignore_errors=True)


main()
