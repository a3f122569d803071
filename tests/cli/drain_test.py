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
                records = settings.get("name", "tailrace") + ".*plan"  # or .local-plan
                while len(list(self.local.rglob(records))) < epochs and time.monotonic() < deadline:
                    time.sleep(0.01)
                yield process
            finally:
                process.kill()

    def killed(self, epochs=3, **settings):
        with self.living(epochs, **settings):
            pass

    @contextlib.contextmanager
    def umask(self, mask):
        before = os.umask(mask)
        try:
            yield
        finally:
            os.umask(before)

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


class DirectoryTest(DrainTest):
    """`tailrace drain DIR`."""

    def test_a_shared_directory_means_what_was_captured_for_it(self):
        other = self.root / "other"
        other.mkdir()
        self.killed()
        self.killed(shared_dir=other, name="second")
        self.assertEqual(set(self.states(self.shared, "--dry-run", code=5)),
                         {("tailrace", epoch) for epoch in (1, 2, 3)})
        self.assertEqual(set(self.states(f"{self.shared}/").values()), {"committed"})
        self.assertEqual(self.committed(), [1, 2, 3])
        self.assertEqual(list(other.glob("*.tailrace")), [])
        said = self.drain(self.shared).stderr
        self.assertIn(f"nothing to drain into {self.shared}: no unfinished epoch for it lies in {self.local}, which",
                      said)
        self.assertIn("tailrace drain --local-dir TIER", said)
        self.assertEqual(set(self.states(other)), {("second", epoch) for epoch in (1, 2, 3)})
        self.drain(self.root / "missing", code=3)

    def test_records_say_in_which_tiers(self):
        tiers = [self.root / "tier 1", self.root / "tier 2"]
        for name, tier in zip(("first", "second"), tiers):
            tier.mkdir()
            local, self.local = self.local, tier
            with self.living(1, record="yes", name=name):
                self.wait_for_record_of(tier)  # another thread writes it
            self.local = local
        found = json.loads(self.drain(self.shared, "--json").stdout)
        self.assertEqual(found["local_dirs"], [str(tier.resolve()) for tier in tiers])
        self.assertEqual({epoch["job"]: epoch["state"] for epoch in found["epochs"]},
                         {"first": "committed", "second": "committed"})

    def wait_for_record_of(self, tier):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if any(str(tier) in path.read_text() for path in (self.root / "state").rglob("*") if path.is_file()):
                return
            time.sleep(0.01)
        self.fail(f"no record names {tier}")

    def test_it_may_be_a_tier_or_a_nodes_directory(self):
        self.killed(1)
        node = self.node_directory()
        here, self.local = self.local, self.root / "not here"
        self.assertEqual(self.states(here, "--dry-run", code=5), {("tailrace", 1): "waiting"})
        self.assertEqual(self.states(node), {("tailrace", 1): "committed"})
        self.assertIn(f"nothing to drain in {here}", self.drain(here).stderr)


class AfterDeathTest(DrainTest):
    def test_of_epochs_that_were_kept_on_the_node_the_newest_is_committed(self):
        self.killed(6, shared_every=3)
        said = subprocess.run([TAILRACE, "ls", self.shared], capture_output=True, text=True, check=True,
                              env=self.environment()).stdout
        self.assertRegex(said, r"note: epoch 6 of run 1 of job tailrace is newer and lies only on nodes \(here: 1 of 1 "
                               r"ranks\); to bring it here, run `tailrace drain` on node 0 \(.*\)\n")
        self.assertRegex(said, r"note: epoch 5 .*; a session on the same nodes finds it\n")
        self.assertLess(max(map(len, said.splitlines())), 200)
        looked = self.states("--dry-run", code=5)
        self.assertEqual({epoch for _, epoch in looked}, {1, 4, 6})
        self.drain()
        self.assertEqual(self.committed(), [1, 4, 6])
        self.assertEqual(self.restored(), "restored 6")
        self.drain()
        self.assertEqual(list(self.local.rglob("*plan")), [], "records of older ones are not needed any more")

    def test_what_was_captured_is_committed_without_the_program(self):
        self.killed()
        self.assertEqual(self.committed(), [])
        looked = self.drain("--dry-run", code=5)
        self.assertRegex(looked.stdout, r"epoch 3 of run 1 of job tailrace in .*/shared: waits for the shares of node 0 \(")
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

    def test_of_an_epoch_that_only_lacks_its_names_it_says_so(self):
        self.killed(1)
        kept = self.root / "kept"
        shutil.copytree(self.local, kept)
        self.drain()
        for file in self.shared.glob("*.tailrace"):
            file.rename(file.with_name(file.name + ".unfinished"))
        shutil.rmtree(self.local)
        kept.rename(self.local)
        self.assertIn("all shares are written; a drain commits it", self.drain("--dry-run", code=5).stdout)
        self.assertIn("committed", self.drain().stdout)
        self.assertEqual(self.committed(), [1])

    def test_files_have_the_rights_that_the_program_would_give_them(self):
        for program, drain in ((0o077, 0o022), (0o027, 0o077)):
            with self.umask(program):
                self.killed(epochs=1)
            with self.umask(drain):
                self.drain()
            rights = {oct(file.stat().st_mode & 0o777) for file in self.shared.glob("*.tailrace")}
            self.assertEqual(rights, {oct(0o666 & ~program)})
            for file in self.shared.glob("*.tailrace"):
                file.unlink()

    def test_ls_says_for_which_nodes_an_epoch_waits(self):
        self.killed(1)
        said = subprocess.run([TAILRACE, "ls", self.shared], capture_output=True, text=True, check=True,
                              env=self.environment()).stdout
        self.assertRegex(said, r"note: epoch 1 .*to bring it here, run `tailrace drain` on node 0 \(")
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

    def test_a_shared_directory_that_is_gone_can_be_forgotten(self):
        self.killed(2, keep_local=8)
        other = self.root / "other"
        other.mkdir()
        self.killed(1, shared_dir=other, name="other")
        of_other = sorted(path for path in self.local.rglob("other.*"))
        shutil.rmtree(self.shared)
        said = self.drain("--name", "tailrace", code=1).stdout
        self.assertIn("the shared directory is missing (if for good: tailrace drain --forget)", said)

        files = sorted(path for path in self.local.rglob("tailrace.*"))
        left = files[0].parent / "r0001.p00000.1.files"
        (left / "fields").mkdir(parents=True)
        (left / "fields/u.h5").write_bytes(b"half")
        looked = self.drain("--forget", self.shared).stdout
        self.assertIn(f"files that the program wrote or restored by itself: {left}", looked)
        self.assertRegex(looked, r"tailrace +2 +1 +1 of 1 +2 ")
        self.assertRegex(looked, f"would remove the data captured for {self.shared}: 2 epochs, 4 files, 8.*, 1 directory .* --yes")
        document = json.loads(self.drain("--forget", self.shared, "--json").stdout)
        self.assertEqual(sorted(path for epoch in document["epochs"] for path in epoch["files"]),
                         [str(path) for path in files])
        self.assertEqual(document["directories_of_files"], [str(left)])
        self.assertFalse(document["removed"])
        self.assertEqual(sorted(self.local.rglob("tailrace.*")), files)
        self.assertTrue((left / "fields/u.h5").exists())

        self.assertIn("2 epochs", self.drain("--forget", f"{self.shared}/", "--yes").stdout)
        self.assertEqual(sorted(self.local.rglob("tailrace*")), [], "the node's directory goes, too")
        self.assertEqual(sorted(self.local.rglob("other.*")), of_other)
        self.assertIn("was captured for", self.drain("--forget", self.shared, "--yes").stdout)
        self.assertEqual(self.states(), {("other", 1): "committed"})

    def test_what_can_still_reach_its_directory_is_not_forgotten_by_mistake(self):
        self.killed(1)
        files = sorted(self.local.rglob("tailrace.*"))
        asked = self.drain("--forget", self.shared)
        self.assertIn("--yes will be refused: ", asked.stderr)
        self.assertNotIn("add --yes", asked.stdout)
        self.assertIn("nothing was removed: ", self.drain("--forget", self.shared, "--yes", code=2).stderr)
        self.assertEqual(sorted(self.local.rglob("tailrace.*")), files)
        self.drain("--forget", self.shared, "--yes", "--force")
        self.assertEqual(sorted(self.local.rglob("tailrace.*")), [])
        self.assertIn("nothing to drain", self.drain().stderr)

    def test_nothing_is_forgotten_while_a_session_holds_it(self):
        with self.living(1):
            files = sorted(self.local.rglob("*.capture"))
            self.shared.rename(self.root / "away")
            said = self.drain("--forget", self.shared, "--yes", code=4).stderr
            self.assertIn("nothing was removed: a session, an agent or another drain may need it: ", said)
            self.assertEqual(sorted(self.local.rglob("*.capture")), files)

    def test_what_is_forgotten_is_found_by_the_path_that_drain_names(self):
        """That is the path behind the link that the program used, and a link may lie there by now."""
        place, link = self.root / "place", self.root / "link"
        place.mkdir()
        link.symlink_to(place)
        self.killed(1, shared_dir=link / "shared")
        link.unlink()
        place.rename(self.root / "away")
        place.symlink_to(self.local)
        told, = json.loads(self.drain("--json", code=1).stdout)["epochs"]
        self.assertEqual(told["shared_dir"], f"{place}/shared")
        self.drain("--forget", told["shared_dir"], "--yes")
        self.assertEqual(sorted(self.local.rglob("tailrace.*")), [])

    def test_records_that_cannot_be_removed_are_no_work(self):
        """Two directories lie here, so a pass that changes something is followed by another one."""
        alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this machine gives no namespaces")
        for name in ("a", "b"):
            self.killed(1, name=name)
        read_only = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
        done = subprocess.run([*alone, "sh", "-c", read_only, "sh", self.local, TAILRACE, "drain"], timeout=20,
                              capture_output=True, text=True, env=self.environment(), check=False)
        self.assertEqual((done.returncode, self.committed()), (0, [1, 1]), f"{done.stdout}\n{done.stderr}")
        complaints = done.stderr.count("a plan record that is no longer needed could not be removed: ")
        self.assertEqual(complaints, 2, done.stderr)
        self.assertEqual(self.states(), {("a", 1): "committed", ("b", 1): "committed"})

    def test_a_tier_that_anybody_may_rearrange_is_refused_as_by_a_session(self):
        self.killed(1)
        self.local.chmod(0o777)
        refusal = f"the directory '{self.local}' is not trusted, .* \\(chmod \\+t\\), or name a directory in it"
        done = subprocess.run(self.session("restore"), capture_output=True, text=True, timeout=60, check=False,
                              env=self.environment())
        self.assertRegex(done.stdout, refusal)
        for words in ((), ("--dry-run",), ("--forget", self.root / "gone")):
            self.assertRegex(self.drain(*words, code=2).stderr, refusal)
        self.assertEqual(self.committed(), [])
        self.local.chmod(0o755)
        self.drain()
        self.assertEqual(self.committed(), [1])

    def test_a_warning_is_said_once_however_often_it_looks_again(self):
        with self.living(2):
            record, *_ = sorted(self.local.rglob("*.plan"))
            record.write_bytes(record.read_bytes()[:-1])
            said = self.drain("--wait", "3s", code=1).stderr
        self.assertEqual(said.count("a plan record cannot be used and is left as it is"), 1, said)
        self.assertEqual(said.count("looking again"), 1, said)

    def test_mistakes_are_named(self):
        self.drain("--yes", code=2)
        self.drain("--forget", self.shared, "--wait", "1s", code=2)
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
        said = self.drain().stderr
        self.assertIn("nothing to drain", said)
        self.assertRegex(said, f"{node} is skipped: .*is not trusted.*belongs to user {MALLORY}")
        self.assertEqual(len(json.loads(self.drain("--json").stdout)["skipped"]), 1)
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
