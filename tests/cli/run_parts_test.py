"""The parts of `tailrace run` that need no program: what it decides, what it reads from listings, host files,
and how an epoch is set aside.   run_parts_test.py TOOLS_DIRECTORY
"""

import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

TOOLS = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(TOOLS / "run"))

import epochs  # noqa: E402
import launchers  # noqa: E402
import placement  # noqa: E402
import set_aside  # noqa: E402
import watching  # noqa: E402
from decisions import Action, Attempt, Epoch, Rules, decide, describe, exit_status  # noqa: E402

OLD, NEW, NEWER = Epoch(1000, 1), Epoch(1200, 1), Epoch(1400, 2)


def died(before=NEW, after=NEW, status=-9, **more):
    return Attempt(status, 1.0, before, after, **more)


def decision(*attempts, restarts=10, step_back=True, nodes_left=1, older_exists=True):
    return decide(attempts, Rules(restarts, step_back), nodes_left=nodes_left, older_exists=older_exists)


def action(*attempts, **more):
    return decision(*attempts, **more).action


class DecisionTest(unittest.TestCase):
    def test_a_program_that_ended_well_or_was_asked_to_end_is_not_started_again(self):
        self.assertIs(action(died(status=0)), Action.END)
        self.assertIs(action(died(asked_to_end=True)), Action.END)

    def test_a_program_that_made_progress_is_started_again(self):
        attempts = [died(OLD, NEW), died(NEW, NEWER), died(NEWER, Epoch(1500, 3))]
        for length in range(1, 4):
            self.assertIs(action(*attempts[:length]), Action.RESTART)

    def test_after_two_deaths_from_an_epoch_it_goes_one_back(self):
        self.assertIs(action(died()), Action.RESTART)
        self.assertIs(action(died(), died()), Action.STEP_BACK)
        self.assertIs(action(died(), died(), died(OLD, OLD)), Action.RESTART)
        self.assertIs(action(died(), died(), died(OLD, OLD), died(OLD, OLD)), Action.STEP_BACK)

    def test_deaths_before_progress_do_not_count(self):
        self.assertIs(action(died(), died(NEW, NEWER), died(NEWER, NEWER)), Action.RESTART)

    def test_a_lost_node_is_not_the_epochs_fault(self):
        lost = died(lost=("n3",))
        self.assertIs(action(lost, lost, lost), Action.RESTART)
        self.assertIs(action(died(), lost), Action.RESTART)
        self.assertIs(action(died(), lost, died()), Action.STEP_BACK)

    def test_a_program_that_opened_no_session_sets_no_epoch_aside(self):
        early = died(opened=False)
        self.assertIs(action(early), Action.RESTART)
        self.assertIn("before it opened a session", decision(early, early).why)
        self.assertIs(action(early, early), Action.END)
        self.assertIs(action(died(), early), Action.RESTART)

    def test_a_health_check_without_nodes_is_refused(self):
        done = subprocess.run([sys.executable, "-B", str(TOOLS / "run"), "--health", "false", "--", "true"],
                              capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        self.assertEqual((done.returncode, "name them with --nodes" in done.stderr), (2, True), done)

    def test_a_wrong_value_is_named_with_its_option_and_what_is_allowed(self):
        for option, value, sentence in (("--restarts", "1000000", "'1000000' is not a whole number from 0 to 999999"),
                                        ("--restarts", "-1", "'-1' is not a whole number from 0 to 999999"),
                                        ("--restarts", "x", "'x' is not a whole number from 0 to 999999"),
                                        ("--watch", "1", None), ("--grace", "1y", "such as 90s or 5min"),
                                        ("--grace", "", "'' is not a length of time"),
                                        *((name, "", "'' is empty: leave it out, or give it a value") for name in (
                                            "--nodes", "--health", "--dir", "--local-dir", "--name"))):
            done = subprocess.run([sys.executable, "-B", str(TOOLS / "run"), "--agents", "none", option, value, "--",
                                   "true"], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
            if sentence is None:
                self.assertEqual(done.returncode, 0, done)
                continue
            self.assertRegex(done.stderr, f"argument {option}: .*{re.escape(sentence)}")
            self.assertEqual(done.returncode, 2)

    def test_words_that_a_shell_cannot_read_are_refused(self):
        for option in (["--health", "check '"], ["--agents", "carry", "--agents-launcher", "mpiexec '"]):
            done = subprocess.run([sys.executable, "-B", str(TOOLS / "run"), *option, "--", "true"],
                                  capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
            self.assertEqual((done.returncode, "cannot be split into words" in done.stderr), (2, True), done)

    def test_a_check_that_hangs_does_not_keep_it_from_ending(self):
        with tempfile.TemporaryDirectory() as top:
            hosts, began = pathlib.Path(top, "hosts"), pathlib.Path(top, "began")
            hosts.write_text("a\nb\n")
            process = subprocess.Popen(
                [sys.executable, "-B", str(TOOLS / "run"), "--nodes", str(hosts), "--launcher", "local",
                 "--agents", "none", "--health", f"sh -c 'touch {began}; sleep 100'", "--", "true"],
                stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
            while not began.exists():
                time.sleep(0.02)
            process.terminate()
            _, said = process.communicate(timeout=30)
            self.assertEqual((process.returncode, "not started: it was asked to end" in said), (143, True), said)
            self.assertNotIn("left out", said)

    def test_where_nobody_knows_the_epochs_none_is_set_aside(self):
        unknown = Attempt(-9, 61, None, None, known=False)
        self.assertIs(action(*[unknown] * 5), Action.RESTART)
        at_once = died(None, None, known=False)
        self.assertIs(action(unknown, at_once), Action.RESTART)
        self.assertIn("within 60 s", decision(at_once, at_once).why)

    def test_without_an_older_epoch_it_ends(self):
        self.assertIn("no older epoch", decision(died(), died(), older_exists=False).why)
        never = died(None, None)
        self.assertIn("without reaching an epoch", decision(never, never).why)
        long = Attempt(-9, 61, None, None)
        self.assertIs(action(long, long, long), Action.RESTART)

    def test_the_user_may_forbid_it(self):
        for attempt in (died(), died(opened=False), died(None, None)):
            self.assertIs(action(attempt, attempt, attempt, step_back=False), Action.RESTART)

    def test_restarts_are_counted(self):
        self.assertIs(action(died(OLD, NEW), restarts=1), Action.RESTART)
        self.assertIs(action(died(OLD, NEW), died(NEW, NEWER), restarts=1), Action.END)
        self.assertIs(action(died(OLD, NEW), restarts=0), Action.END)

    def test_without_a_node_it_ends(self):
        self.assertIn("no node", decision(died(), nodes_left=0).why)

    def test_a_status_is_told_as_a_shell_does(self):
        self.assertEqual([exit_status(status) for status in (0, 3, -9)], [0, 3, 137])
        self.assertEqual([describe(status) for status in (0, 3, -9, 137)],
                         ["ended well", "ended with status 3", "was killed by SIGKILL", "ended with status 137 (SIGKILL)"])


class PlacementTest(unittest.TestCase):
    def test_host_files_of_both_kinds_are_read_and_written(self):
        nodes = placement.parse_nodes("a:4  # first\n\n# nobody\nb slots=2\nc\n")
        self.assertEqual(nodes, [placement.Node("a", 4), placement.Node("b", 2), placement.Node("c")])
        self.assertEqual(placement.host_file(nodes, "mpich"), "a:4\nb:2\nc\n")
        self.assertEqual(placement.host_file(nodes, "openmpi"), "a slots=4\nb slots=2\nc\n")

    def test_what_is_no_host_file_is_refused(self):
        for text in ("", "# only\n", "a\na\n", "-oProxyCommand=evil\n", "a;b\n", "a:0\n", "a:many\n", "a:\n", "a slots=0\n",
                     "a slots=\n", "a:99999999999999999999\n", "a\0b\n", "\u0663:4\n", "a:\u0663\n"):
            with self.assertRaises(ValueError, msg=text):
                placement.parse_nodes(text)
        self.assertEqual(placement.parse_nodes("fe80::1\n"), [placement.Node("fe80::1")])

    def run_with(self, nodes, *command):
        """tailrace run on a host file with these bytes, or without one."""
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        path = pathlib.Path(directory, "hosts")
        path.write_bytes(nodes or b"")
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("TAILRACE_", "SLURM_"))}
        return subprocess.run([sys.executable, "-B", str(TOOLS / "run"), *(["--nodes", path] if nodes else []), "--",
                               *command], capture_output=True, text=True, timeout=60, check=False, env=plain)

    def test_a_host_file_of_bytes_is_refused_with_a_sentence(self):
        done = self.run_with(b"\xff\xfe\x00", "true")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("it is not a text file", done.stderr)

    def test_where_no_nodes_are_known_a_command_cannot_name_them(self):
        done = self.run_with(None, "echo", "-n", "{slots}", "{hosts}")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("{hosts}, {slots} in the command", done.stderr)

    def test_slurms_counts_are_read(self):
        self.assertEqual(placement.counts("4(x2),3"), [4, 4, 3])
        self.assertEqual([placement.counts(text) for text in ("2", "", "4(x", "9(x9999999999)")], [[2], [], [], []])

    def test_launchers_get_their_option(self):
        nodes = [placement.Node("a", 4), placement.Node("b", 2)]
        place = placement.place
        self.assertEqual(place(["mpiexec", "-n", "4", "./x"], "mpich", nodes, "", "/t/f"),
                         ["mpiexec", "-f", "/t/f", "-n", "4", "./x"])
        self.assertEqual(place(["mpirun", "./x"], "openmpi", nodes, "", "/t/f"),
                         ["mpirun", "--hostfile", "/t/f", "-x", "TAILRACE_STARTED_BY", "./x"])
        self.assertEqual(place(["srun", "./x"], "srun", nodes, "", "/t/f"),
                         ["srun", "--nodes=2", "--nodelist=a,b", "--kill-on-bad-exit=1", "--no-kill=off", "--overlap",
                          "./x"])
        self.assertEqual(place(["./x"], "", nodes, "", "/t/f"), ["./x"])

    def test_a_command_may_say_itself_where(self):
        nodes = [placement.Node("a", 4), placement.Node("b", 2)]
        self.assertEqual(placement.place(["mpiexec", "-f", "hosts", "./x"], "mpich", nodes, "hosts", "/t/f"),
                         ["mpiexec", "-f", "/t/f", "./x"])
        self.assertEqual(placement.place(["mpiexec", "-hosts={hosts}", "./x"], "mpich", nodes, "", "/t/f"),
                         ["mpiexec", "-hosts=a,b", "./x"])
        self.assertEqual(placement.place(["mpiexec", "-n", "{slots}", "./x", "{count}"], "mpich", nodes, "", "/t/f"),
                         ["mpiexec", "-f", "/t/f", "-n", "6", "./x", "2"])


    def test_a_launcher_starts_one_agent_on_each_node(self):
        nodes = [placement.Node("a", 1), placement.Node("b", 1)]
        settings = {"TAILRACE_LOG": "info", "HOME": "/", "XDG_STATE_HOME": "/s"}

        def words(family, *command):
            return placement.one_per_node(command, family, nodes, "/t/f", settings)
        self.assertEqual(words("mpich", "/m/mpiexec", "-n", "9", "./x"),
                         ["/m/mpiexec", "-f", "/t/f", "-ppn", "1", "-n", "2"])
        self.assertEqual(words("openmpi", "mpirun", "./x"),
                         ["mpirun", "--hostfile", "/t/f", "--map-by", "ppr:1:node", "--bind-to", "none",
                          "-x", "TAILRACE_LOG", "-x", "XDG_STATE_HOME", "-n", "2"])
        self.assertEqual(words("srun", "srun", "-n", "9", "--mpi=pmix", "./x"),
                         ["srun", "--overlap", "--nodes=2", "--nodelist=a,b", "--mpi=pmix", "--ntasks=2",
                          "--ntasks-per-node=1", "--kill-on-bad-exit=1"])
        alone = placement.one_per_node(["mpiexec", "./x"], "mpich", [], "/t/f", settings)
        self.assertEqual(alone, ["mpiexec", "-n", "1"])


class LauncherTest(unittest.TestCase):
    def test_words_reach_a_host_as_they_are(self):
        with unittest.mock.patch.dict(os.environ, {"TAILRACE_LOCAL_DIR": "/a b/'c'"}):
            words = launchers.command_on("ssh", "n1", ["echo", "$(id)", "a b"])
        self.assertEqual(words[-2], "n1")
        self.assertIn("'TAILRACE_LOCAL_DIR=/a b/'\"'\"'c'\"'\"''", words[-1])
        self.assertTrue(words[-1].endswith("echo '$(id)' 'a b'"))
        self.assertIn("--nodelist=n1", launchers.command_on("srun", "n1", ["true"]))

    def test_an_ssh_whose_host_says_nothing_more_ends(self):
        words = launchers.command_on("ssh", "n1", ["true"])
        self.assertLessEqual({"ServerAliveInterval=10", "ServerAliveCountMax=3"}, set(words))

    def test_the_users_check_decides_who_is_well(self):
        sick = launchers.sick("local", ["good", "bad"], "sh -c 'test $0 = good || { echo no fan >&2; exit 1; }'")
        self.assertEqual(sick, {"bad": "no fan"})
        self.assertEqual(launchers.sick("local", ["a"], ""), {})
        self.assertIn("did not end", launchers.sick("local", ["a"], "sh -c 'sleep 60'", timeout_s=0.2)["a"])


class ListingTest(unittest.TestCase):
    def complete(self, number, run=1, **more):
        return {"job": "j", "epoch": number, "run": run, "state": "complete", "replaced": False, "left_behind": False,
                **more}

    def captured(self, number, here, ranks=4, directory="/l/n0", **more):
        return {"job": "j", "epoch": number, "run": 1, "ranks_here": here, "ranks": ranks, "directories": [directory],
                **more}

    def listing(self, shared=(), local=(), host="a"):
        return {"host": host, "epochs": list(shared), "node_local": list(local)}

    def test_the_newest_complete_epoch_counts(self):
        survey = epochs.judge([self.listing([self.complete(10), self.complete(20), self.complete(90, left_behind=True),
                                             self.complete(30, state="incomplete")])], "")
        self.assertEqual((survey.newest, survey.in_shared, survey.older_exists, survey.job),
                         (Epoch(20, 1), True, True, "j"))
        alone = epochs.judge([self.listing([self.complete(10)])], "")
        self.assertFalse(alone.older_exists)

    def test_parts_of_all_nodes_make_an_epoch(self):
        shared = [self.complete(10)]
        a = self.listing(shared, [self.captured(20, 2, waiting_for=["node 0 (a)"])], "a")
        b = self.listing(shared, [self.captured(20, 2)], "b")
        self.assertEqual(epochs.judge([a], "").newest, Epoch(10, 1))
        both = epochs.judge([a, b], "")
        self.assertEqual((both.newest, both.in_shared, both.older_exists), (Epoch(20, 1), False, True))
        self.assertEqual(both.waiting, {"epoch 20 (run 1)": ["node 0 (a)"]})

    def kept(self, node, scheme, survives, members=(0, 1, 2, 3), directory=None, keeper=True):
        protection = {"redundancy": scheme, "losses_survived": survives, "nodes": list(members),
                      "keepers_here": [node] if keeper else []}
        return self.listing([self.complete(10)], [self.captured(20, 1, directory=directory or f"/l/j-1.node000{node}",
                                                                protection=[protection])], f"n{node}")

    def test_what_lost_nodes_had_captured_counts_if_the_others_give_it_back(self):
        def survey(nodes, scheme, survives, **more):
            return epochs.judge([self.kept(node, scheme, survives, **more) for node in nodes], "")
        for nodes, scheme, survives, whole in (
            ((0, 1, 3), "partner", 1, True),
            ((1, 3), "partner", 1, True),  # both partners are there
            ((0, 3), "partner", 1, False),  # node 1 is kept by node 2
            ((0, 1, 3), "xor", 1, True),
            ((0, 3), "xor", 1, False),
            ((0, 3), "rs:2", 2, True),
            ((3,), "rs:2", 2, False),
        ):
            found = survey(nodes, scheme, survives)
            expected = (Epoch(20, 1), True) if whole else (Epoch(10, 1), False)
            self.assertEqual((found.newest, found.given_back), expected, (nodes, scheme))
        self.assertFalse(survey((0, 1, 3), "xor", 1, members=(1, 3, 5)).given_back)  # the set of nodes 2, 4 is gone
        # A node whose object is missing counts as lost with parity, and does not matter with partner.
        for scheme, whole in (("partner", True), ("xor", False)):
            listings = [self.kept(0, scheme, 1), self.kept(1, scheme, 1, keeper=False), self.kept(3, scheme, 1)]
            self.assertIs(epochs.judge(listings, "").given_back, whole)

    def test_what_a_session_would_not_find_does_not_count(self):
        shared = [self.complete(10)]
        for entry in (self.captured(20, 4, captured_for="/elsewhere"), self.captured(20, 0)):
            self.assertEqual(epochs.judge([self.listing(shared, [entry])], "").newest, Epoch(10, 1))

    def test_several_jobs_have_to_be_told_apart(self):
        listing = self.listing([self.complete(10), self.complete(20, job="k")])
        self.assertIn("2 jobs", epochs.judge([listing], "").why_unknown)
        self.assertEqual(epochs.judge([listing], "k").newest, Epoch(20, 1))


class RecordTest(unittest.TestCase):
    def test_sessions_of_an_attempt_are_found_in_the_records(self):
        with tempfile.TemporaryDirectory() as top:
            line = {"record": "session", "run_uid": "a", "began_unix_ms": 5000, "run": 3, "shared_dir": "/s", "job": "j",
                    "settings": {"local_dir": "/l"}}
            later = dict(line, began_unix_ms=6000, shared_dir="/t")
            text = "\n".join(map(json.dumps, (line, later, {"record": "epoch"}))) + '\n{"record": "sess'
            pathlib.Path(top, "j-1.jsonl").write_text(text)
            there = epochs.Session(5000, 3, epochs.Place("/s", "j", ("/l",)), "a")
            known = epochs.sessions_in_records(top)
            self.assertEqual(known[0], there)
            self.assertEqual([one.place.directory for one in known], ["/s", "/t"])
            self.assertEqual(epochs.new_sessions_on(top, epochs.Place("/s"), ()), [there])
            self.assertEqual(epochs.new_sessions_on(top, epochs.Place("/s"), known), [])
            self.assertIsNone(epochs.new_sessions_on(top, epochs.Place("/u"), ()))
            settings = dict(line["settings"], started_by="an attempt")
            pathlib.Path(top, "j-3.jsonl").write_text(json.dumps(dict(line, run=9, settings=settings)) + "\n")
            marked = [one.run for one in epochs.sessions_in_records(top) if one.started_by == "an attempt"]
            self.assertEqual(marked, [9])
            pathlib.Path(top, "j-3.jsonl").unlink()
            # Rank 0's machine may have a clock that is behind: the session of a later attempt is new all the same.
            pathlib.Path(top, "j-2.jsonl").write_text(json.dumps(dict(line, began_unix_ms=4000, run=4)) + "\n")
            self.assertEqual([one.run for one in epochs.new_sessions_on(top, epochs.Place("/s"), known)], [4])

    def test_the_directory_is_found_in_the_settings(self):
        self.assertEqual(epochs.directory_in_settings({"TAILRACE_SHARED_DIR": "/s"}), "/s")
        self.assertEqual(epochs.directory_in_settings({}), "")
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('# shared_dir = "/no"\nshared_dir = "/a b"  # here\n')
            file.flush()
            self.assertEqual(epochs.directory_in_settings({"TAILRACE_CONFIG": file.name}), "/a b")


class SetAsideTest(unittest.TestCase):
    def setUp(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="tailrace aside "))
        self.addCleanup(shutil.rmtree, self.top)
        self.shared, self.local = self.top / "shared", self.top / "local"
        self.node = self.local / (set_aside.node_prefix(str(self.shared), "j") + "0002")
        self.node.mkdir(parents=True)
        self.shared.mkdir()
        for name in ("j.e000001200.r0003.1of2.tailrace", "j.e000001200.r0003.2of2.tailrace.takeover",
                     "j.e000001200.r0002.1of1.tailrace", "jj.e000001200.r0003.1of1.tailrace"):
            (self.shared / name).write_text(name)
        for name in ("j.e000001200.r0003.p00001.capture", "j.e000001200.r0003.n0002.plan",
                     "j.e000001000.r0003.p00001.capture"):
            (self.node / name).write_text(name)

    def names(self, directory):
        return sorted(path.name for path in directory.iterdir())

    def test_the_files_of_one_epoch_go_and_can_come_back(self):
        self.assertEqual(set_aside.shared_files(str(self.shared), "j", 1200, 3), (2, "set-aside"))
        self.assertEqual(self.names(self.shared), ["j.e000001200.r0002.1of1.tailrace",
                                                   "jj.e000001200.r0003.1of1.tailrace", "set-aside"])
        self.assertEqual(self.names(self.shared / "set-aside"),
                         ["HOW-TO-BRING-THEM-BACK", "j.e000001200.r0003.1of2.tailrace",
                          "j.e000001200.r0003.2of2.tailrace.takeover"])

    def test_captured_parts_are_moved_or_removed(self):
        arguments = ([str(self.local), f"{self.local}/."], str(self.shared), "j", 1200, 3)
        self.assertEqual(set_aside.captured_parts(*arguments, remove=False), 2)
        self.assertEqual(self.names(self.node), ["j.e000001000.r0003.p00001.capture", "set-aside"])
        (self.node / "j.e000001200.r0003.p00001.capture").write_text("")
        self.assertEqual(set_aside.captured_parts(*arguments, remove=True), 1)
        self.assertEqual(self.names(self.node), ["j.e000001000.r0003.p00001.capture", "set-aside"])

    def test_nothing_that_was_set_aside_is_replaced(self):
        set_aside.shared_files(str(self.shared), "j", 1200, 3)
        (self.shared / "j.e000001200.r0003.1of2.tailrace").write_text("another")
        (self.shared / "j.e000001200.r0003.2of2.tailrace").write_text("another")
        self.assertEqual(set_aside.shared_files(str(self.shared), "j", 1200, 3), (2, "set-aside-2"))
        self.assertEqual(self.names(self.shared / "set-aside-2"),
                         ["HOW-TO-BRING-THEM-BACK", "j.e000001200.r0003.1of2.tailrace",
                          "j.e000001200.r0003.2of2.tailrace"])
        self.assertIn("mv -n set-aside-2/*.", (self.shared / "set-aside-2" / "HOW-TO-BRING-THEM-BACK").read_text())
        self.assertEqual((self.shared / "set-aside" / "j.e000001200.r0003.1of2.tailrace").read_text(),
                         "j.e000001200.r0003.1of2.tailrace")

    def test_links_are_not_followed(self):
        elsewhere = self.top / "elsewhere"
        elsewhere.mkdir()
        (self.shared / "set-aside").symlink_to(elsewhere)
        with self.assertRaises(OSError):
            set_aside.shared_files(str(self.shared), "j", 1200, 3)
        real = self.top / "real"
        self.node.rename(real)
        self.node.symlink_to(real)
        self.assertEqual(set_aside.captured_parts([str(self.local)], str(self.shared), "j", 1200, 3, True), 0)
        self.assertEqual((self.names(elsewhere), len(self.names(real))), ([], 3))

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
    def test_another_users_directory_is_left_alone(self):
        os.chown(self.node, 63002, 63002)
        for remove in (True, False):
            self.assertEqual(set_aside.captured_parts([str(self.local)], str(self.shared), "j", 1200, 3, remove), 0)
        self.assertEqual(len(self.names(self.node)), 3)

    def test_a_session_that_uses_the_directory_is_not_disturbed(self):
        self.hold(self.shared, fcntl.LOCK_SH)
        with self.assertRaises(BlockingIOError):
            set_aside.shared_files(str(self.shared), "j", 1200, 3, patience_s=0.3)
        self.assertEqual(len(self.names(self.shared)), 4)

    def test_captured_parts_stay_while_one_of_the_directories_here_is_used(self):
        other = self.node.with_name(self.node.name[:-1] + "3")
        other.mkdir()
        self.hold(other, fcntl.LOCK_EX)
        arguments = ([str(self.local)], str(self.shared), "j", 1200, 3)
        for remove in (True, False):
            with self.assertRaises(BlockingIOError) as refused:
                set_aside.captured_parts(*arguments, remove, patience_s=0.1)
            self.assertEqual(refused.exception.filename, str(other))
            self.assertIn("a session, an agent or a drain uses it", str(refused.exception))
        self.assertEqual(len(self.names(self.node)), 3)
        with unittest.mock.patch.object(time, "sleep", lambda _: fcntl.flock(self.held, fcntl.LOCK_UN)):
            self.assertEqual(set_aside.captured_parts(*arguments, False), 2)  # it was used for a moment only

    def hold(self, directory, how):
        self.held = os.open(directory, os.O_RDONLY)
        self.addCleanup(os.close, self.held)
        fcntl.flock(self.held, how)


class WatchTest(unittest.TestCase):
    def look(self, answers):
        """Watches until the answers of the checks have been given. Returns which nodes are lost."""
        given = iter(answers)
        over = threading.Event()

        def check():
            answer = next(given, None)
            if answer is None:
                over.set()
            return dict.fromkeys(answer or (), "no power")

        watch = watching.Watch(check, every_s=0.001)
        watch.start()
        while not over.wait(0.001) and not watch.lost():
            pass
        watch.stop()
        return sorted(watch.lost())

    def test_a_node_that_fails_twice_in_a_row_is_lost(self):
        self.assertEqual(self.look(["", "a", "ab"]), ["a"])

    def test_a_node_that_fails_now_and_then_is_not(self):
        self.assertEqual(self.look(["a", "", "a", "b", "a", "b"]), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
