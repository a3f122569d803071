"""The parts of `tailrace run` that need no program: what it decides, what it reads from listings, host files,
and how an epoch is set aside.   run_parts_test.py TOOLS_DIRECTORY
"""

import json
import os
import pathlib
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

import agents  # noqa: E402
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
        for text in ("", "# only\n", "a\na\n", "-oProxyCommand=evil\n", "a;b\n"):
            with self.assertRaises(ValueError, msg=text):
                placement.parse_nodes(text)

    def test_slurms_counts_are_read(self):
        self.assertEqual(placement.counts("4(x2),3"), [4, 4, 3])
        self.assertEqual([placement.counts(text) for text in ("2", "", "4(x", "9(x9999999999)")], [[2], [], [], []])

    def test_launchers_get_their_option(self):
        nodes = [placement.Node("a", 4), placement.Node("b", 2)]
        place = placement.place
        self.assertEqual(place(["mpiexec", "-n", "4", "./x"], "mpich", nodes, "", "/t/f"),
                         ["mpiexec", "-f", "/t/f", "-n", "4", "./x"])
        self.assertEqual(place(["mpirun", "./x"], "openmpi", nodes, "", "/t/f"), ["mpirun", "--hostfile", "/t/f", "./x"])
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


class LauncherTest(unittest.TestCase):
    def test_words_reach_a_host_as_they_are(self):
        with unittest.mock.patch.dict(os.environ, {"TAILRACE_LOCAL_DIR": "/a b/'c'"}):
            words = launchers.command_on("ssh", "n1", ["echo", "$(id)", "a b"])
        self.assertEqual(words[-2], "n1")
        self.assertIn("'TAILRACE_LOCAL_DIR=/a b/'\"'\"'c'\"'\"''", words[-1])
        self.assertTrue(words[-1].endswith("echo '$(id)' 'a b'"))
        self.assertIn("--nodelist=n1", launchers.command_on("srun", "n1", ["true"]))

    def test_the_users_check_decides_who_is_well(self):
        sick = launchers.sick("local", ["good", "bad"], "sh -c 'test $0 = good || { echo no fan >&2; exit 1; }'")
        self.assertEqual(sick, {"bad": "no fan"})
        self.assertEqual(launchers.sick("local", ["a"], ""), {})
        self.assertIn("did not end", launchers.sick("local", ["a"], "sh -c 'sleep 60'", 0.2)["a"])


class AgentTest(unittest.TestCase):
    """With a stand-in for the command, which writes down what it is asked."""

    def tool(self, top, stop_status=0):
        path = pathlib.Path(top, "tailrace")
        path.write_text(f'''#!/bin/sh
echo "$*" >> "{top}/asked"
case "$*" in
"agent stop"*) test {stop_status} = 0 && touch "{top}/stop"; exit {stop_status};;
agent*) sleep 0.2; test -e "{top}/served" && exit 4
    echo "agent process 1 serves /l"; while test ! -e "{top}/stop"; do sleep 0.02; done;;
ls*) echo '{{"epochs": [], "node_local": []}}';;
drain*) test -e "{top}/slow" && exec sleep 100
    echo \'{{"local_dir": "/l", "epochs": [{{"epoch": 7, "state": "failed", "why": "torn"}}]}}\'; exit 1;;
esac
''')
        path.chmod(0o755)
        return str(path)

    def test_agents_are_started_and_stopped_for_each_directory(self):
        with tempfile.TemporaryDirectory() as top:
            there = agents.Agents(self.tool(top), "local")
            there.start(["a", "b"], ["/x", "/y"])
            there.stop(lambda: 20)
            asked = sorted(pathlib.Path(top, "asked").read_text().splitlines())
            self.assertEqual(asked, [f"agent --idle-exit 1h --local-dir {place}" for place in ("/x", "/y")]
                             + [f"agent stop --local-dir {place} --grace 20s" for place in ("/x", "/y")])

    def test_an_agent_that_does_not_listen_yet_is_ended_all_the_same(self):
        with tempfile.TemporaryDirectory() as top:
            there = agents.Agents(self.tool(top, stop_status=3), "local")
            there.start(["a"], [])
            with unittest.mock.patch.object(agents, "LISTENS_S", 0.1):
                there.stop(lambda: 20)
            self.assertEqual(pathlib.Path(top, "asked").read_text().splitlines(), ["agent --idle-exit 1h"])

    def test_the_agent_of_somebody_else_is_not_told_to_stop(self):
        with tempfile.TemporaryDirectory() as top:
            pathlib.Path(top, "served").touch()
            there = agents.Agents(self.tool(top), "local")
            there.start(["a"], [])
            there.stop(lambda: 20)
            self.assertEqual(pathlib.Path(top, "asked").read_text().splitlines(), ["agent --idle-exit 1h"])

    def test_a_program_that_cannot_be_executed_leaves_no_agent(self):
        with tempfile.TemporaryDirectory() as top:
            program = pathlib.Path(top, "program")
            program.write_text("no program")
            program.chmod(0o755)
            done = subprocess.run(
                [sys.executable, "-B", TOOLS / "run" / "__main__.py", "--tailrace", self.tool(top), "--launcher", "local",
                 "--dir", f"{top}/shared", "--", program], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (4, f"tailrace run: {program}: Exec format error\n"))
            self.assertIn("agent stop --grace 10s", pathlib.Path(top, "asked").read_text().splitlines())

    def test_an_end_that_is_asked_for_in_a_drain_is_heard(self):
        with tempfile.TemporaryDirectory() as top:
            asked = pathlib.Path(top, "asked")
            pathlib.Path(top, "slow").touch()
            began = time.monotonic()
            with subprocess.Popen(
                [sys.executable, "-B", TOOLS / "run" / "__main__.py", "--tailrace", self.tool(top), "--launcher", "local",
                 "--dir", f"{top}/shared", "--grace", "1s", "--", "sh", "-c", f"echo program >> {top}/asked; exit 3"],
                stderr=subprocess.PIPE, text=True) as run:
                while "drain" not in (asked.read_text() if asked.exists() else ""):
                    self.assertIsNone(run.poll())
                    time.sleep(0.05)
                run.terminate()
                said = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 3, said)
            self.assertIn("not started again: it was asked to end", said)
            self.assertEqual(asked.read_text().splitlines().count("program"), 1)
            self.assertLess(time.monotonic() - began, 60)

    def test_what_a_drain_could_not_finish_is_said(self):
        with tempfile.TemporaryDirectory() as top:
            tool = self.tool(top)
            said = agents.drain(tool, "local", ["a"], ["/x", "/y"], "j", lambda: 20)
            self.assertEqual([text.split(": ", 1)[1] for text in said], ["epoch 7: failed: torn"])
            asked = pathlib.Path(top, "asked").read_text()
            self.assertIn("drain --json --newest-first --local-dir /y --name j", asked)
            self.assertEqual(agents.local_directories(tool, "local", ["a"]), ("/l",))


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
            line = {"record": "session", "began_unix_ms": 5000, "run": 3, "shared_dir": "/s", "job": "j",
                    "settings": {"local_dir": "/l"}}
            later = dict(line, began_unix_ms=6000, shared_dir="/t")
            text = "\n".join(map(json.dumps, (line, later, {"record": "epoch"}))) + '\n{"record": "sess'
            pathlib.Path(top, "j-1.jsonl").write_text(text)
            there = epochs.Session(5000, 3, epochs.Place("/s", "j", ("/l",)))
            self.assertEqual(epochs.sessions_in_records(top, 4)[0], there)
            self.assertEqual([one.place.directory for one in epochs.sessions_in_records(top, 0)], ["/s", "/t"])
            self.assertEqual(epochs.sessions_in_records(top, 7), [])
            self.assertEqual(epochs.sessions_on(top, epochs.Place("/s"), 5), [there])
            self.assertEqual(epochs.sessions_on(top, epochs.Place("/s"), 5.5), [])
            self.assertIsNone(epochs.sessions_on(top, epochs.Place("/u"), 0))

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
        self.assertEqual(set_aside.shared_files(str(self.shared), "j", 1200, 3), 2)
        self.assertEqual(self.names(self.shared), ["j.e000001200.r0002.1of1.tailrace",
                                                   "jj.e000001200.r0003.1of1.tailrace", "set-aside"])
        self.assertEqual(self.names(self.shared / "set-aside"),
                         ["HOW-TO-BRING-THEM-BACK", "j.e000001200.r0003.1of2.tailrace",
                          "j.e000001200.r0003.2of2.tailrace.takeover"])

    def test_captured_parts_are_moved_or_removed(self):
        arguments = (str(self.local), str(self.shared), "j", 1200, 3)
        self.assertEqual(set_aside.captured_parts(*arguments, remove=False), 2)
        self.assertEqual(self.names(self.node), ["j.e000001000.r0003.p00001.capture", "set-aside"])
        (self.node / "j.e000001200.r0003.p00001.capture").write_text("")
        self.assertEqual(set_aside.captured_parts(*arguments, remove=True), 1)
        self.assertEqual(self.names(self.node), ["j.e000001000.r0003.p00001.capture", "set-aside"])

    def test_nothing_that_was_set_aside_is_replaced(self):
        set_aside.shared_files(str(self.shared), "j", 1200, 3)
        (self.shared / "j.e000001200.r0003.1of2.tailrace").write_text("another")
        with self.assertRaises(FileExistsError):
            set_aside.shared_files(str(self.shared), "j", 1200, 3)
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
        self.assertEqual(set_aside.captured_parts(str(self.local), str(self.shared), "j", 1200, 3, True), 0)
        self.assertEqual((self.names(elsewhere), len(self.names(real))), ([], 3))

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
    def test_another_users_directory_is_left_alone(self):
        os.chown(self.node, 63002, 63002)
        for remove in (True, False):
            self.assertEqual(set_aside.captured_parts(str(self.local), str(self.shared), "j", 1200, 3, remove), 0)
        self.assertEqual(len(self.names(self.node)), 3)

    def test_a_session_that_uses_the_directory_is_not_disturbed(self):
        import fcntl
        held = os.open(self.shared, os.O_RDONLY)
        self.addCleanup(os.close, held)
        fcntl.flock(held, fcntl.LOCK_SH)
        with self.assertRaises(BlockingIOError):
            set_aside.shared_files(str(self.shared), "j", 1200, 3, patience_s=0.3)
        self.assertEqual(len(self.names(self.shared)), 4)


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
