"""`tailrace drain` after sessions that were killed in the middle of a flush, and what `tailrace ls` says of them.
drain_test.py TAILRACE DRAIN_SESSION
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TAILRACE, SESSION = sys.argv[1:3]
VICTIM, MALLORY = 63001, 63002  # users, where the test may be them
SLOW = "512KiB"  # per second: an epoch of 4 MiB takes 8 s


def drop(user):
    """Options of subprocess that make the child another user."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


class DrainTest(unittest.TestCase):
    user = None

    def setUp(self):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tailrace drain ", dir=memory))
        self.addCleanup(shutil.rmtree, self.root)
        self.shared, self.local = self.root / "shared", self.root / "local"
        for directory in (self.root, self.shared, self.local):
            directory.mkdir(exist_ok=True)
            if self.user is not None:
                os.chown(directory, self.user, self.user)
        self.root.chmod(0o755)

    def environment(self, **more):
        plain = {key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_")}
        return dict(plain, TAILRACE_LOCAL_DIR=str(self.local), XDG_STATE_HOME=str(self.root / "state"), **more)

    def session(self, *words, **settings):
        settings = {"shared_dir": self.shared, "local_dir": self.local, "record": "no", **settings}
        return [SESSION, *words, *(f"{key}={value}" for key, value in settings.items())]

    @contextlib.contextmanager
    def living(self, epochs=3, **settings):
        """A session whose epochs are captured and on their way. Its process, which is gone afterwards."""
        settings = {"bandwidth_cap": SLOW, "queue_epochs": 8, "keep_local": 8, "buffer_bytes": "256KiB", **settings}
        with subprocess.Popen(self.session("save", str(epochs), **settings), stdout=subprocess.PIPE, text=True,
                              env=self.environment(), **drop(self.user)) as process:
            try:
                said = [process.stdout.readline().strip() for _ in range(epochs)]
                self.assertEqual(said, [f"saved {epoch + 1}" for epoch in range(epochs)])
                deadline = time.monotonic() + 30
                records = settings.get("name", "tailrace") + ".*.plan"
                while len(list(self.local.rglob(records))) < epochs and time.monotonic() < deadline:
                    time.sleep(0.01)
                yield process
            finally:
                process.kill()

    def killed(self, epochs=3, **settings):
        with self.living(epochs, **settings):
            pass

    def drain(self, *arguments, code=0, timeout=60, **environment):
        done = subprocess.run([TAILRACE, "drain", *map(str, arguments)], capture_output=True, text=True,
                              timeout=timeout, env=self.environment(**environment), **drop(self.user))
        self.assertEqual(done.returncode, code, f"{done.stdout}\n{done.stderr}")
        return done

    def states(self, *arguments, code=0):
        found = json.loads(self.drain(*arguments, "--json", code=code).stdout)
        self.assertEqual(found["ok"], code == 0)
        return {(epoch["job"], epoch["epoch"]): epoch["state"] for epoch in found["epochs"]}

    def committed(self):
        text = subprocess.run([TAILRACE, "ls", "--json", self.shared], capture_output=True, text=True, check=True,
                              env=self.environment()).stdout
        return sorted(epoch["epoch"] for epoch in json.loads(text)["epochs"] if epoch["state"] == "complete")

    def restored(self):
        """By a session on another node, which has no captured parts."""
        elsewhere = self.root / "elsewhere"
        done = subprocess.run(self.session("restore", local_dir=elsewhere), capture_output=True, text=True, timeout=60,
                              env=self.environment(), **drop(self.user))
        shutil.rmtree(elsewhere, ignore_errors=True)
        return done.stdout.strip()

    def node_directory(self):
        found, = self.local.iterdir()
        return found


class AfterDeathTest(DrainTest):
    def test_what_was_captured_is_committed_without_the_program(self):
        self.killed()
        self.assertEqual(self.committed(), [])
        looked = self.drain("--dry-run", code=5)
        self.assertRegex(looked.stdout, r"epoch 3 of run 1 of job tailrace in .*/shared: waiting for node 0 \(")
        self.assertEqual(self.committed(), [])
        done = self.drain("--local", self.local)
        self.assertRegex(done.stdout, r"epoch 1 of run 1 .*: committed \(4.* MiB written here\)")
        self.assertEqual(done.stdout.count("committed"), 3)
        self.assertIn("writing epoch 1 of run 1 of tailrace: written: 100 % of 4", done.stderr)
        self.assertEqual(self.committed(), [1, 2, 3])
        self.assertEqual(self.restored(), "restored 3")
        self.assertEqual(sorted(path.suffix for path in self.shared.iterdir()), [".tailrace"] * 3)
        again = self.drain()
        self.assertEqual(again.stdout, "")
        self.assertIn("nothing to drain", again.stderr)

    def test_ls_says_for_which_nodes_an_epoch_waits(self):
        self.killed(1)
        said = subprocess.run([TAILRACE, "ls", self.shared], capture_output=True, text=True, check=True,
                              env=self.environment()).stdout
        self.assertRegex(said, r"note: epoch 1 .*`tailrace drain` on the epoch's nodes.*: waiting for node 0 \(")
        self.drain()
        said = subprocess.run([TAILRACE, "ls", self.shared], capture_output=True, text=True, check=True,
                              env=self.environment()).stdout
        self.assertNotIn("waiting", said)

    def test_a_session_that_lives_is_left_alone_and_may_be_waited_for(self):
        with self.living() as process:
            said = self.drain(code=4)
            self.assertIn("in use: ", said.stdout)
            self.assertEqual(self.states(code=4)["tailrace", 3], "in_use", "the session may have committed the first")
            with subprocess.Popen([TAILRACE, "drain", "--wait", "60s"], stdout=subprocess.PIPE, text=True,
                                  env=self.environment()) as drain:
                time.sleep(0.7)
                self.assertIsNone(drain.poll())
                process.kill()
                said, _ = drain.communicate(timeout=50)
            self.assertEqual(drain.returncode, 0, said)
        self.assertEqual(self.committed(), [1, 2, 3])

    def test_a_drain_that_is_interrupted_goes_on_next_time(self):
        self.killed()
        command = subprocess.Popen([TAILRACE, "drain", "--newest-first"], stdout=subprocess.PIPE, text=True,
                                   env=self.environment(TAILRACE_BANDWIDTH_CAP=SLOW))
        with command as drain:
            deadline = time.monotonic() + 30
            while not list(self.shared.glob("*.takeover")) and time.monotonic() < deadline:
                time.sleep(0.01)
            begun, = self.shared.glob("*.takeover")
            self.assertIn("e000000003", begun.name)
            drain.send_signal(signal.SIGTERM)
            said, _ = drain.communicate(timeout=30)
        self.assertEqual(drain.returncode, 130, said)
        self.assertEqual(said.count("stopped before"), 3)
        self.assertEqual(self.committed(), [])
        self.drain()
        self.assertEqual(self.committed(), [1, 2, 3])

    def test_two_drains_of_one_node_do_the_work_once(self):
        self.killed()
        drains = [subprocess.Popen([TAILRACE, "drain", "--wait", "60s"], stdout=subprocess.PIPE, text=True,
                                   env=self.environment(TAILRACE_BANDWIDTH_CAP="8MiB")) for _ in range(2)]
        said = [drain.communicate(timeout=60)[0] for drain in drains]
        self.assertEqual([drain.returncode for drain in drains], [0, 0], said)
        self.assertEqual(sum(text.count("written here") for text in said), 3, said)
        self.assertEqual(self.committed(), [1, 2, 3])

    def test_jobs_are_chosen_by_name(self):
        self.killed(1, name="a")
        self.killed(1, name="a-b")
        self.assertEqual(self.states("--name", "a"), {("a", 1): "committed"})
        self.assertEqual(self.states("--name", "b"), {})
        self.assertEqual(self.states(), {("a-b", 1): "committed"})

    def test_a_damaged_part_or_record_is_a_failure_with_a_sentence(self):
        self.killed(2)
        part, = self.local.rglob("*e000000001*.capture")
        with open(part, "r+b") as file:
            file.seek(2 << 20)
            file.write(b"wrong")
        said = self.drain("--json", code=1).stdout
        first, second = json.loads(said)["epochs"]
        self.assertEqual((first["state"], second["state"]), ("failed", "committed"))
        self.assertIn(part.name, first["why"])
        self.assertEqual(self.states(), {("tailrace", 1): "superseded"})
        self.killed(1, name="other")
        record, = self.local.rglob("*.plan")
        record.write_bytes(record.read_bytes()[:-1])
        said = self.drain(code=1)
        self.assertIn("its plan record cannot be used", said.stdout)
        self.assertIn(record.name, said.stderr)

    def test_mistakes_are_named(self):
        self.assertIn("not a length of time", self.drain("--wait", "soon", code=2).stderr)
        self.assertIn("bandwidth_cap", self.drain(code=2, TAILRACE_BANDWIDTH_CAP="fast").stderr)
        self.assertIn("nothing to drain", self.drain("--local-dir", self.root / "nowhere").stderr)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users in turn")
class OtherUserTest(DrainTest):
    user = VICTIM

    def setUp(self):
        super().setUp()
        os.chown(self.local, 0, 0)
        self.local.chmod(0o1777)

    def test_another_users_directory_is_not_drained(self):
        self.killed(1)
        node = self.node_directory()
        for path in (node, *node.iterdir()):
            os.chown(path, MALLORY, MALLORY)
        node.chmod(0o777)
        for path in node.iterdir():
            path.chmod(0o666)
        before = {path.name: path.read_bytes() for path in node.iterdir()}
        self.assertIn("nothing to drain", self.drain().stderr)
        self.assertEqual(self.committed(), [])
        self.assertEqual({path.name: path.read_bytes() for path in node.iterdir()}, before)

    def test_a_record_that_another_user_planted_is_neither_believed_nor_followed(self):
        self.killed(1)
        record, = self.local.rglob("*.plan")
        content = record.read_bytes()

        def by_owner():
            record.write_bytes(content)
            os.chown(record, MALLORY, MALLORY)

        def by_link():
            target = self.root / "planted"
            target.write_bytes(content)
            os.chown(target, VICTIM, VICTIM)
            record.symlink_to(target)

        def by_second_name():
            by_link()
            record.unlink()
            os.link(self.root / "planted", record)

        for plant in (by_owner, by_link, by_second_name):
            with self.subTest(plant.__name__):
                record.unlink()
                plant()
                said = self.drain(code=1)
                self.assertIn("its plan record cannot be used", said.stdout)
                self.assertEqual(self.committed(), [])
                self.assertFalse(list(self.shared.glob("*.takeover")))

    def test_a_part_that_another_user_planted_is_not_flushed(self):
        self.killed(1)
        part, = self.local.rglob("*.capture")
        os.chown(part, MALLORY, MALLORY)
        part.chmod(0o644)
        self.assertRegex(self.drain(code=1).stdout, "failed: .*belongs to user")
        self.assertEqual(self.committed(), [])

    def test_each_user_drains_his_own_in_a_directory_of_both(self):
        self.killed(1)
        self.drain()
        self.assertEqual(self.committed(), [1])
        self.assertEqual(self.restored(), "restored 1")
        owner = {path.stat().st_uid for path in self.shared.iterdir()}
        self.assertEqual(owner, {VICTIM})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
