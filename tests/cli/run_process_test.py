"""`tailrace run` as a process: what it leaves in the file system, and how it ends.
run_process_test.py TOOLS_DIRECTORY
"""

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
import unittest.mock

TOOLS = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(TOOLS / "run"))

import scratch  # noqa: E402

RUN = [sys.executable, "-B", str(TOOLS / "run"), "--agents", "none"]


class ScratchTest(unittest.TestCase):
    def setUp(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="tailrace scratch "))
        self.addCleanup(shutil.rmtree, self.top)
        here = unittest.mock.patch.object(tempfile, "tempdir", str(self.top))
        here.start()
        self.addCleanup(here.stop)
        self.prefix = f"tailrace-run-{os.uname().nodename}-"

    def directory(self, name):
        path = self.top / name
        path.mkdir()
        (path / "hosts-1").write_text("a\n")
        return path

    def test_only_what_nobody_needs_is_removed(self):
        elsewhere = self.directory("elsewhere")
        dead, of_another_machine = self.directory(self.prefix + "dead"), self.directory("tailrace-run-x-y")
        link, foreign = self.top / f"{self.prefix}link", self.directory(self.prefix + "foreign")
        link.symlink_to(elsewhere)
        (foreign / "sub").mkdir()
        with unittest.mock.patch.object(os, "geteuid", return_value=os.geteuid() + 1):
            scratch.remove_leftovers(str(self.top))
        self.assertTrue(dead.exists(), "somebody else's")
        with scratch.Scratch() as first, scratch.Scratch() as second:
            self.assertFalse(dead.exists())
            for path in (elsewhere / "hosts-1", link, foreign / "sub", of_another_machine, first.path, second.path):
                self.assertTrue(os.path.lexists(path), path)
            pathlib.Path(first.path, "hosts-1").touch()
        self.assertFalse(os.path.exists(first.path) or os.path.exists(second.path))

    def test_one_that_is_taken_for_a_leftover_before_it_is_locked_is_made_anew(self):
        opened = []
        really_open = scratch._open

        def open_and_lose_the_first(path):
            opened.append(path)
            directory = really_open(path)
            if len(opened) == 1:
                shutil.rmtree(path)
            return directory

        with unittest.mock.patch.object(scratch, "_open", open_and_lose_the_first), scratch.Scratch() as own:
            self.assertEqual(own.path, opened[1])
            self.assertTrue(os.path.isdir(own.path))

    def test_what_a_killed_one_leaves_goes_with_the_next_when_the_program_is_gone(self):
        environment = {"PATH": os.environ["PATH"], "TMPDIR": str(self.top)}
        began = self.top / "began"
        says_who_it_is = 'echo $$ > "$0.new" && mv "$0.new" "$0" && exec sleep 100'
        with subprocess.Popen([*RUN, "--", "sh", "-c", says_who_it_is, began], env=environment) as process:
            while not began.exists():
                self.assertIsNone(process.poll())
                time.sleep(0.02)
            program = int(began.read_text())
            process.kill()
        [left] = self.top.glob(f"{self.prefix}*")
        try:
            subprocess.run([*RUN, "--", "true"], env=environment, check=True, timeout=60)
            self.assertTrue(left.exists(), "the program may still look into it")
        finally:
            os.kill(program, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while left.exists() and time.monotonic() < deadline:
            subprocess.run([*RUN, "--", "true"], env=environment, check=True, timeout=60)
        self.assertEqual(list(self.top.glob("tailrace-run-*")), [])


class EndTest(unittest.TestCase):
    """With a stand-in for the mpiexec of MPICH, which ends with 0 after SIGTERM."""

    def test_an_interrupt_while_it_starts_ends_it_without_a_traceback(self):
        """The tailrace command has blocked the signal."""
        process = subprocess.Popen(
            [*RUN, "--", "true"], stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]), text=True)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
        self.assertEqual((process.returncode, said), (130, ""))

    def ended(self, *records):
        with tempfile.TemporaryDirectory() as top:
            up = pathlib.Path(top, "up")
            lines = "\n".join(json.dumps(record) for record in records).replace("TOP", top)
            mpiexec, tool = pathlib.Path(top, "mpiexec"), pathlib.Path(top, "tailrace")
            mpiexec.write_text(f"""#!/bin/sh
test "$1" = --version && {{ echo HYDRA; exit; }}
trap 'exit 0' TERM
cat > "{top}/job.jsonl" <<'END'
{lines}
END
touch "{up}"
while :; do sleep 0.05; done
""")
            tool.write_text("#!/bin/sh\necho '{\"local_dir\": \"/l\", \"epochs\": [], \"node_local\": []}'\n")
            for program in (mpiexec, tool):
                program.chmod(0o755)
            process = subprocess.Popen(
                [*RUN, "--tailrace", tool, "--launcher", "local", "--dir", f"{top}/shared", "--", mpiexec, "./x"],
                stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], "TAILRACE_RECORD_DIR": top})
            while not up.exists():
                self.assertIsNone(process.poll())
                time.sleep(0.02)
            process.terminate()
            said = process.communicate(timeout=60)[1]
            self.assertIn("not started again: it was asked to end", said)
            return process.returncode, said

    def session(self, uid):
        return {"record": "session", "run_uid": uid, "shared_dir": "TOP/shared", "job": "j", "run": 1,
                "began_unix_ms": 5, "settings": {"local_dir": "/l"}}

    def test_the_sessions_of_other_programs_are_not_its_own(self):
        """Some begin while it runs, and their records lie in the same directory."""
        for own in (True, False):
            with self.subTest(own=own), tempfile.TemporaryDirectory() as top:
                marked = dict(self.session("a"), shared_dir=f"{top}/own")
                marked["settings"] = {"local_dir": "/l", "started_by": "MARK"}
                other = dict(self.session("b"), shared_dir=f"{top}/other", began_unix_ms=6)
                lines = "\n".join(json.dumps(record) for record in ([marked, other] if own else [other]))
                program, tool = pathlib.Path(top, "program"), pathlib.Path(top, "tailrace")
                program.write_text(f"""#!/bin/sh
sed "s/MARK/$TAILRACE_STARTED_BY/" > "{top}/job.jsonl" <<'END'
{lines}
END
exit 1
""")
                tool.write_text("#!/bin/sh\necho '{\"local_dir\": \"/l\", \"epochs\": [], \"node_local\": []}'\n")
                for file in (program, tool):
                    file.chmod(0o755)
                done = subprocess.run(
                    [*RUN, "--tailrace", tool, "--launcher", "local", "--restarts", "0", "--", program],
                    stderr=subprocess.PIPE, text=True, timeout=60, check=False,
                    env={"PATH": os.environ["PATH"], "TAILRACE_RECORD_DIR": top})
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(f"the program saves in {top}/own" in done.stderr, own, done.stderr)
                self.assertEqual("shared directory is not known" in done.stderr, not own, done.stderr)
                self.assertNotIn(f"{top}/other", done.stderr)

    def test_a_launcher_that_does_not_say_how_its_ranks_ended_is_not_believed(self):
        end_of_a = {"record": "end", "run_uid": "a"}
        for records in ((), (self.session("a"),), (self.session("a"), self.session("b"), end_of_a)):
            status, said = self.ended(*records)
            self.assertEqual(status, 143, said)
            self.assertIn("attempt 1: the program was ended by SIGTERM (mpiexec does not say how", said)

    def test_a_session_that_was_closed_shows_that_it_ended_well(self):
        status, said = self.ended(self.session("a"), {"record": "end", "run_uid": "a"})
        self.assertEqual(status, 0, said)
        self.assertIn("attempt 1: the program ended well", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
