"""How `tailrace run` starts, stops and drains with agents, with stand-ins for the commands that it calls.
run_agents_test.py TOOLS_DIRECTORY
"""

import contextlib
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

TOOLS = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(TOOLS / "run"))

import agents  # noqa: E402
import carrying  # noqa: E402
import launchers  # noqa: E402


class AgentTest(unittest.TestCase):
    """With a stand-in for the command, which writes down what it is asked."""

    def setUp(self):
        self.said = []

    def tool(self, top, stop_status=0):
        path = pathlib.Path(top, "tailrace")
        path.write_text(f'''#!/bin/sh
echo "$*" >> "{top}/asked"
case "$*" in
"agent stop"*) test {stop_status} -gt 1 || touch "{top}/stop"; exit {stop_status};;
agent*) sleep 0.2
    test -e "{top}/served" && {{ echo "tailrace: another agent serves /l: process 7 has it" >&2; exit 4; }}
    test -e "{top}/cannot" && {{ echo "tailrace: /l: no room" >&2; echo "srun: error" >&2; exit 4; }}
    echo "agent process 1 serves /l"; while test ! -e "{top}/stop"; do sleep 0.02; done
    sleep 0.2; touch "{top}/ended well";;
ls*) echo '{{"epochs": [], "node_local": []}}';;
drain*) test -e "{top}/slow" && exec sleep 100
    echo \'{{"local_dir": "/l", "epochs": [{{"epoch": 7, "state": "failed", "why": "torn"}}]}}\'; exit 1;;
esac
''')
        path.chmod(0o755)
        return str(path)

    def test_agents_are_started_and_stopped_for_each_directory(self):
        with tempfile.TemporaryDirectory() as top:
            there = agents.Agents(self.tool(top), "local", self.said.append)
            there.start(["a", "b"], ["/x", "/y"], lambda: 20)
            there.stop(lambda: 20)
            asked = sorted(pathlib.Path(top, "asked").read_text().splitlines())
            self.assertEqual(asked, [f"agent --idle-exit 1h --for-lost 10s --local-dir {place}" for place in ("/x", "/y")]
                             + [f"agent stop --local-dir {place} --grace 20s" for place in ("/x", "/y")])

    def test_an_agent_that_does_not_listen_yet_is_ended_all_the_same(self):
        with tempfile.TemporaryDirectory() as top:
            there = agents.Agents(self.tool(top, stop_status=3), "local", self.said.append)
            there.start(["a"], [], lambda: 20)
            with unittest.mock.patch.object(agents, "LISTENS_S", 0.1):
                there.stop(lambda: 20)
            self.assertEqual(pathlib.Path(top, "asked").read_text().splitlines(),
                             ["agent --idle-exit 1h --for-lost 10s"])
            self.assertEqual(self.said, [])

    def test_the_agent_of_somebody_else_is_not_told_to_stop(self):
        with tempfile.TemporaryDirectory() as top:
            pathlib.Path(top, "served").touch()
            there = agents.Agents(self.tool(top), "local", self.said.append)
            there.start(["a"], [], lambda: 20)
            there.stop(lambda: 20)
            self.assertEqual(pathlib.Path(top, "asked").read_text().splitlines(),
                             ["agent --idle-exit 1h --for-lost 10s"])
            self.assertEqual(self.said, [])

    def test_an_agent_that_does_not_start_is_named_once(self):
        with tempfile.TemporaryDirectory() as top:
            self.ssh(top)
            there = agents.Agents(self.tool(top), "ssh", self.said.append)
            pathlib.Path(top, "cannot").touch()
            for _attempt in range(2):
                there.start(["a", "b"], ["/x"], lambda: 20)
                there.stop(lambda: 20)
            self.assertEqual(sorted(self.said), [
                f"the agent for /x on node {node} did not start, and the program runs without it: /l: no room"
                for node in "ab"])
            self.assertNotIn("stop", pathlib.Path(top, "asked").read_text())

    def test_an_agent_that_cannot_be_executed_is_named(self):
        there = agents.Agents("/no/tailrace", "local", self.said.append)
        there.start(["a"], [], lambda: 20)
        there.stop(lambda: 20)
        self.assertEqual(self.said, [f"the agent on node {os.uname().nodename} did not start, and the program runs "
                                     "without it: /no/tailrace: No such file or directory"])

    def test_a_program_runs_without_an_agent_that_does_not_start(self):
        with tempfile.TemporaryDirectory() as top:
            tool = self.tool(top)
            pathlib.Path(top, "cannot").touch()
            done = subprocess.run(
                [sys.executable, "-B", TOOLS / "run" / "__main__.py", "--tailrace", tool, "--launcher", "local",
                 "--dir", f"{top}/shared", "--", "true"], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("did not start, and the program runs without it: /l: no room\n", done.stderr)

    def ssh(self, top):
        """Puts a stand-in for ssh in front of all others. It lives on when its host is gone, as ssh does for a while
        after a power cut. Then new calls fail or, if `hangs` lies there, do not come back."""
        commands = pathlib.Path(top, "commands")
        commands.mkdir()
        (commands / "ssh").write_text(f'''#!/bin/sh
while test "$1" = -o; do shift 2; done; HOST=$1; shift
test -e "{top}/hangs-$HOST" && case "$*" in *"agent stop"*) exec sleep 100;; esac
test -e "{top}/gone-$HOST" && case "$*" in *"agent stop"*) exit 255;; *) echo "agent process 2 serves /l"; exec sleep 100;; esac
exec sh -c "$*"
''')
        (commands / "ssh").chmod(0o755)
        found = unittest.mock.patch.dict(os.environ, {"PATH": f"{commands}:{os.environ['PATH']}"})
        found.start()
        self.addCleanup(found.stop)

    def stop_with_a_lost_node(self, lost, *marks):
        """Returns for how long that node was waited for."""
        with tempfile.TemporaryDirectory() as top:
            self.ssh(top)
            for mark in ("gone", *marks):
                pathlib.Path(top, f"{mark}-b").touch()
            there = agents.Agents(self.tool(top), "ssh", self.said.append)
            there.start(["a", "b"], [], lambda: 20)
            began = time.monotonic()
            there.stop(lambda: began + 20 - time.monotonic(), lost)
            self.assertIn("agent stop --grace 20s", pathlib.Path(top, "asked").read_text().splitlines())
            return time.monotonic() - began

    def test_the_agent_of_a_node_that_is_gone_is_not_waited_for(self):
        self.assertLess(self.stop_with_a_lost_node(()), 10)

    def test_a_lost_node_that_does_not_answer_is_not_waited_for(self):
        with unittest.mock.patch.object(agents, "LOST_S", 0.5):
            self.assertLess(self.stop_with_a_lost_node({"b"}, "hangs"), 10)

    def test_agents_of_more_nodes_than_select_knows_are_stopped(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 1200:
            self.skipTest("this machine allows too few open files")
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, hard))
        with contextlib.ExitStack() as files, tempfile.TemporaryDirectory() as top:
            while files.enter_context(open(os.devnull, encoding="utf-8")).fileno() < 1100:
                pass
            there = agents.Agents(self.tool(top), "local", self.said.append)
            there.start(["a"], [], lambda: 20)
            there.stop(lambda: 20)
            self.assertIn("agent stop --grace 20s", pathlib.Path(top, "asked").read_text().splitlines())

    def test_there_is_a_descriptor_for_each_agent(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        here = unittest.mock.patch.object(launchers, "command_on", lambda _launcher, _host, _words: ["true"])
        with here:
            there = agents.Agents("tailrace", "ssh", self.said.append)
            there.start([f"n{number}" for number in range(50)], [], lambda: 20)
            there.stop(lambda: 20)

    def test_an_agent_that_has_left_something_ends_by_itself(self):
        with tempfile.TemporaryDirectory() as top:
            there = agents.Agents(self.tool(top, stop_status=1), "local", self.said.append)
            there.start(["a"], [], lambda: 20)
            deadline = time.monotonic() + 20
            there.stop(lambda: deadline - time.monotonic())
            self.assertTrue(pathlib.Path(top, "ended well").exists())

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
            self.assertIn("drain --json --newest-first --for-lost 10s --local-dir /y --name j", asked)
            self.assertEqual(agents.local_directories(tool, "local", ["a"]), ("/l",))


class CarryingTest(unittest.TestCase):
    """With a stand-in for the launcher and the command; what it does is given to it by files."""

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="tailrace carrying ")
        self.addCleanup(shutil.rmtree, self.top)
        self.said = []
        tool = pathlib.Path(self.top, "tailrace")
        tool.write_text(f'''#!/bin/sh
echo "$*" >> "{self.top}/asked"
case "$*" in
"agent stop"*) touch "{self.top}/stop";;
*"agent --mpi"*) sleep 0.2; test -e "{self.top}/fails" && {{ echo "tailrace: no MPI"; echo "exit code 4"; exit 4; }}
    n=2; test -e "{self.top}/alone" && n=1
    echo "tailrace: info: agent process 1 serves /l, as agent 0 of $n"
    while test ! -e "{self.top}/stop"; do sleep 0.02; done;;
agent*) echo "agent process 2 serves /l"; while test ! -e "{self.top}/stop"; do sleep 0.02; done;;
esac
''')
        tool.chmod(0o755)
        self.there = carrying.CarryingAgents(str(tool), "ssh", lambda _hosts, agent: [str(tool), "mpiexec", *agent[1:]],
                                             self.said.append)
        here = unittest.mock.patch.object(launchers, "command_on", lambda _launcher, _host, words: list(words))
        here.start()
        self.addCleanup(here.stop)

    def asked(self):
        return sorted(pathlib.Path(self.top, "asked").read_text().splitlines())

    def test_the_program_begins_when_all_agents_serve_and_each_is_told_to_end(self):
        self.there.start(["a", "b"], ["/x"], lambda: 20)
        self.assertEqual(self.asked(), ["mpiexec agent --mpi --idle-exit 1h --for-lost 10s --local-dir /x"])
        self.there.stop(lambda: 20)
        self.assertEqual(self.asked()[:2], ["agent stop --local-dir /x --grace 20s"] * 2)
        self.assertEqual(self.said, [])

    def test_where_they_do_not_serve_each_node_gets_a_plain_one(self):
        for how, why in (("fails", "they have ended: tailrace: no MPI"), ("alone", "jobs of 1 instead of one of 2")):
            pathlib.Path(self.top, how).touch()
            self.there.start(["a", "b"], [], lambda: 20)
            self.assertIn(why, self.said.pop())
            self.there.stop(lambda: 1)
            self.assertEqual(self.asked().count("agent --idle-exit 1h --for-lost 10s"), 2)
            pathlib.Path(self.top, how).unlink()
            pathlib.Path(self.top, "asked").unlink()

    def test_they_are_not_waited_for_when_the_user_asks_for_an_end(self):
        began = time.monotonic()
        self.there.start(["a", "b", "c"], [], lambda: 0)
        self.there.stop(lambda: 0.1)
        self.assertLess(time.monotonic() - began, 20)

    def test_a_death_of_theirs_is_said(self):
        self.there.start(["a", "b"], [], lambda: 20)
        self.there._jobs[0].process.kill()
        self.there._jobs[0].process.wait()
        self.there.stop(lambda: 20)
        self.assertIn("had ended while the program ran (status -9", self.said.pop())

    def test_agents_that_are_abandoned_end_at_once(self):
        self.there.start(["a", "b"], [], lambda: 20)
        process = self.there._jobs[0].process
        self.there.abandon()
        self.assertEqual(process.returncode, -9)
        self.there.stop(lambda: 20)
        self.assertEqual((self.said, [line for line in self.asked() if "stop" in line]), ([], []))

    def test_without_a_known_launcher_it_has_to_be_named(self):
        run = [sys.executable, "-B", TOOLS / "run" / "__main__.py"]
        for options, why in ((["--agents", "carry"], "name the one for the agents with --agents-launcher"),
                             (["--agents-launcher", "mpiexec"], "is for --agents carry")):
            done = subprocess.run([*run, *options, "--", "true"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(why, done.stderr)

    def test_a_launcher_may_be_named(self):
        launcher = pathlib.Path(self.top, "mine")
        launcher.write_text(f'#!/bin/sh\nprintf "%s " "$@" > "{self.top}/words"\n')
        launcher.chmod(0o755)
        hosts = pathlib.Path(self.top, "hosts")
        hosts.write_text("a:4\nb:4\n")
        done = subprocess.run(
            [sys.executable, "-B", TOOLS / "run" / "__main__.py", "--tailrace", self.top + "/tailrace", "--launcher",
             "local", "--dir", f"{self.top}/shared", "--nodes", hosts, "--agents", "carry", "--agents-launcher",
             f"'{launcher}' -n {{count}} -H {{hosts}}", "--", "true"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(pathlib.Path(self.top, "words").read_text(),
                         f"-n 1 -H {os.uname().nodename} {self.top}/tailrace agent --mpi --idle-exit 1h --for-lost 10s ")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
