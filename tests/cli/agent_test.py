"""`tailrace agent` among clients that misbehave, and with epochs that cannot be finished.
agent_test.py TAILRACE DRAIN_SESSION
"""

import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

TAILRACE, SESSION = sys.argv[1:3]
MARK, PROTOCOL_VERSION, STATUS_ASKED = 0x67415254, 4, 2  # agent_process/agent_messages.cc
ASK_STATUS = struct.pack("<IIB", MARK, PROTOCOL_VERSION, STATUS_ASKED)
EXIT_DAMAGED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_FAILED = range(1, 5)


class AgentTest(unittest.TestCase):
    def setUp(self):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tailrace-agent-", dir=memory))
        self.addCleanup(shutil.rmtree, self.root)
        self.shared, self.local = self.root / "shared", self.root / "local"
        self.shared.mkdir()
        plain = {key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_")}
        self.environment = dict(plain, TAILRACE_LOCAL_DIR=str(self.local), XDG_STATE_HOME=str(self.root / "state"))

    @contextlib.contextmanager
    def agent(self, *words, **options):
        """A running agent. It is killed at the end, if it has not ended."""
        with (self.root / "log").open("w") as log, \
                subprocess.Popen([TAILRACE, "agent", *words], stdout=subprocess.PIPE, stderr=log, text=True,
                                 env=self.environment, **options) as agent:
            try:
                self.assertRegex(agent.stdout.readline(), "serves")
                yield agent
            finally:
                agent.kill()

    def ask(self, *words):
        return subprocess.run([TAILRACE, "agent", *words], capture_output=True, text=True, timeout=60,
                              env=self.environment, check=False)

    def connect(self):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(str(self.local / "agent" / "socket"))
        self.addCleanup(client.close)
        return client

    def leave_epochs(self, epochs, **more):
        """A session that dies when it has captured so many, with none committed."""
        settings = {"shared_dir": self.shared, "local_dir": self.local, "record": "no", "bandwidth_cap": "64KiB",
                    "queue_epochs": 8, "keep_local": 8, "buffer_bytes": "256KiB", **more}
        with subprocess.Popen([SESSION, "save", str(epochs), *(f"{key}={value}" for key, value in settings.items())],
                              stdout=subprocess.PIPE, text=True, env=self.environment) as session:
            for epoch in range(epochs):
                self.assertEqual(session.stdout.readline().strip(), f"saved {epoch + 1}")
            deadline = time.monotonic() + 60
            while len(list(self.local.rglob("*plan"))) < epochs and time.monotonic() < deadline:
                time.sleep(0.02)
            session.kill()
        self.assertEqual(len(list(self.local.rglob("*plan"))), epochs)

    def part_of(self, epoch):
        [part] = [path for path in self.local.rglob(f"*e{epoch:09}*") if path.suffix != ".plan"]
        return part

    def damage(self, path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    def test_a_client_that_reads_no_answers_holds_nobody_up(self):
        with self.agent():
            greedy = self.connect()
            greedy.settimeout(60)
            greedy.send(ASK_STATUS)
            self.assertEqual(greedy.recv(1 << 18)[:8], ASK_STATUS[:8], "its first question is answered")
            greedy.setblocking(False)
            deadline = time.monotonic() + 60
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dropped in the end
                while time.monotonic() < deadline:
                    with contextlib.suppress(BlockingIOError):
                        greedy.send(ASK_STATUS)
                self.fail("it is still served")
            self.assertEqual(self.ask("status").returncode, 0)

    def test_clients_wait_where_the_agent_has_no_descriptor_left_for_them(self):
        few = 24
        with self.agent(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))) as agent:
            crowd = [self.connect() for _ in range(few + 6)]
            time.sleep(0.5)  # it may go on to the next second before it is asked
            self.assertIsNone(agent.poll(), (self.root / "log").read_text())
            for client in crowd:
                client.close()
            self.assertEqual(self.ask("status").returncode, 0)
            self.assertIn("have to wait", (self.root / "log").read_text())

    def test_an_epoch_that_cannot_be_finished_is_said_and_is_no_work(self):
        self.leave_epochs(1)
        self.damage(self.part_of(1))
        with self.agent("--idle-exit", "10s") as agent:
            done = self.ask("drain", "--json")
            self.assertEqual(done.returncode, EXIT_DAMAGED, done)
            status = json.loads(done.stdout)
            self.assertEqual((status["left"], [epoch["state"] for epoch in status["epochs"]]), (1, ["failed"]))
            self.assertEqual(agent.wait(60), EXIT_DAMAGED)
        self.assertEqual(len(list(self.local.rglob("*.plan"))), 1, "it is left for the next one")

    def test_the_newest_epoch_is_committed_though_it_was_kept_on_the_node(self):
        with self.agent():
            self.leave_epochs(3, shared_every=8)
            done = self.ask("drain", "--json")
            self.assertEqual(done.returncode, 0, done)
            text = subprocess.run([TAILRACE, "ls", "--json", self.shared], capture_output=True, text=True, check=True,
                                  env=self.environment).stdout
            found = {epoch["epoch"]: epoch["state"] for epoch in json.loads(text)["epochs"]}
            self.assertEqual(found, {1: "complete", 3: "complete"})

    def test_an_agent_that_cannot_start_says_why_and_its_status_is_4(self):
        (self.root / "file").write_text("")
        (self.root / "link").symlink_to(self.root / "target")
        for where, sentence in (("file", "file"), ("file/sub", "file"), ("x" * 300, "too long")):
            for background in ((), ("--background",)):
                done = self.ask(*background, "--idle-exit", "1s", "--local-dir", str(self.root / where))
                self.assertEqual(done.returncode, EXIT_FAILED, done)
                self.assertIn(sentence, done.stderr.lower())
        for log in (".", "missing/log", "link"):
            done = self.ask("--background", "--idle-exit", "1s", "--log", str(self.root / log))
            self.assertEqual(done.returncode, EXIT_FAILED, done)
            self.assertIn(f"opening the log '{self.root / log}'", done.stderr)
            self.assertEqual(self.ask("status").returncode, EXIT_NOT_FOUND, "none runs")
        self.assertFalse((self.root / "target").exists())
        kept = self.root / "kept"
        kept.write_text("what the agent before has said\n")
        with self.agent():
            done = self.ask("--background", "--log", str(kept))
            self.assertEqual(done.returncode, EXIT_FAILED, done)
        self.assertTrue(kept.read_text().startswith("what the agent before has said\n"))
        self.assertEqual(self.ask("--idle-exit", "soon").returncode, EXIT_USAGE)

    def test_an_end_that_takes_longer_than_the_grace_is_waited_for(self):
        """As with what a pass is at, and with programs that the agent has to leave."""
        with self.agent() as agent:
            agent.send_signal(signal.SIGSTOP)
            later = threading.Timer(12, agent.send_signal, [signal.SIGCONT])
            later.start()
            done = self.ask("stop", "--grace", "1s")
            later.join()
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(agent.wait(10), 0)

    def test_a_plan_record_that_cannot_be_used_is_said(self):
        self.leave_epochs(2)
        [record] = [path for path in self.local.rglob("*.plan") if "e000000001" in path.name]
        self.damage(record)
        with self.agent():
            for words in (("drain",), ("stop",)):
                done = self.ask(*words)
                self.assertEqual(done.returncode, EXIT_DAMAGED, done)
                self.assertIn(record.name, done.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
