"""tailrace profile: recorded lines of strace become counts of files, and a program of known calls is counted right.
profile_test.py TAILRACE [unittest options]

Where strace is missing or may not trace, the tests that run it are skipped, with the reason.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

TAILRACE = os.path.abspath(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools", "profile"))

import results  # noqa: E402
import tracer  # noqa: E402
from strace_lines import arguments_of, calls_of  # noqa: E402
from tally import COUNTS, power_below  # noqa: E402
from watcher import Watcher  # noqa: E402


def watched(text, directory="/w"):
    watcher = Watcher(directory)
    watcher.watch(calls_of(text.strip().splitlines(keepends=True)))
    return watcher


def counts(watcher, path, phase):
    """What is not zero."""
    save, restore = watcher.files[path].totals()
    tally = save if phase == "save" else restore
    return {name: getattr(tally, name) for name in COUNTS if getattr(tally, name)}


class LinesTest(unittest.TestCase):
    def test_a_call_in_two_lines_is_one_where_it_returned(self):
        calls = list(
            calls_of(
                [
                    "7 read(3</d/a>,  <unfinished ...>\n",
                    "8 lseek(4</d/b>, 0, SEEK_SET)       = 0\n",
                    '7 <... read resumed>""..., 4096)    = 96\n',
                ]
            )
        )
        self.assertEqual([(c.thread, c.name, c.result) for c in calls], [(8, "lseek", 0), (7, "read", 96)])
        self.assertEqual(arguments_of(calls[1].arguments), ["3</d/a>", '""...', "4096"])

    def test_failed_interrupted_and_foreign_lines_are_passed_over(self):
        text = """\
7 openat(AT_FDCWD</w>, "none", O_RDONLY) = -1 ENOENT (No such file or directory)
7 read(0</dev/pts/1>, 0x7ffe, 10) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)
7 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=8} ---
7 <... write resumed>) = 5
a line of somebody else
7 read(3</w/a>, "", 10 <unfinished ...>
7 +++ killed by SIGKILL +++
"""
        self.assertEqual([call.name for call in calls_of(text.splitlines())], ["exit"])

    def test_names_come_back_from_their_escapes(self):
        line = r'7 openat(AT_FDCWD</w>, "\303\244,\"<\n", O_RDONLY) = 3</w/\303\244,"\74\n>'
        (call,) = calls_of([line])
        self.assertEqual(call.path, '/w/ä,"<\n')
        self.assertEqual(len(arguments_of(call.arguments)), 3)

    def test_sizes_are_counted_by_their_power_of_two(self):
        self.assertEqual([power_below(n) for n in (0, 1, 4095, 4096, 4097, 8191)], [0, 1, 2048, 4096, 4096, 4096])


class WatcherTest(unittest.TestCase):
    def test_a_file_is_saved_and_then_restored(self):
        watcher = watched("""
7 openat(AT_FDCWD</w>, "a", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</w/a>
7 write(3</w/a>, ""..., 5000) = 5000
7 lseek(3</w/a>, 0, SEEK_CUR) = 5000
7 lseek(3</w/a>, 16, SEEK_SET) = 16
7 writev(3</w/a>, [...], 2) = 20
7 fsync(3</w/a>) = 0
7 openat(AT_FDCWD</w>, "a", O_RDONLY) = 3</w/a>
7 read(3</w/a>, ""..., 4096) = 4096
7 read(3</w/a>, ""..., 4096) = 904
7 read(3</w/a>, "", 4096) = 0
""")
        self.assertEqual(
            counts(watcher, "/w/a", "save"),
            {"opens": 1, "writes": 2, "written_bytes": 5020, "seeks": 2, "backward_seeks": 1, "syncs": 1},
        )
        self.assertEqual(counts(watcher, "/w/a", "restore"), {"opens": 1, "reads": 3, "read_bytes": 5000})
        self.assertEqual(watcher.files["/w/a"].restore.read_sizes, {4096: 1, 512: 1, 0: 1})

    def test_what_is_read_before_the_first_write_of_an_update_is_no_save(self):
        watcher = watched("""
7 openat(AT_FDCWD</w>, "a", O_RDWR) = 3</w/a>
7 read(3</w/a>, ""..., 10) = 10
7 write(3</w/a>, ""..., 10) = 10
7 openat(AT_FDCWD</w>, "b", O_RDWR) = 3</w/b>
7 read(3</w/b>, ""..., 10) = 10
""")
        self.assertEqual(counts(watcher, "/w/a", "save"), {"opens": 1, "writes": 1, "written_bytes": 10})
        self.assertEqual(counts(watcher, "/w/a", "restore"), {"reads": 1, "read_bytes": 10})
        self.assertEqual(counts(watcher, "/w/b", "restore"), {"opens": 1, "reads": 1, "read_bytes": 10})

    def test_duplicates_and_forks_share_a_position(self):
        watcher = watched("""
7 openat(AT_FDCWD</w>, "a", O_RDONLY) = 3</w/a>
7 dup2(3</w/a>, 9</w/a>) = 9</w/a>
7 fcntl(9</w/a>, F_DUPFD_CLOEXEC, 20) = 20</w/a>
7 read(20</w/a>, ""..., 100) = 100
7 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f) = 8
8 lseek(9</w/a>, 40, SEEK_SET) = 40
7 lseek(3</w/a>, 50, SEEK_SET) = 50
8 lseek(9</w/a>, 45, SEEK_SET) = 45
""")
        # From 100 to 40 and from 50 to 45, in the child.
        self.assertEqual(counts(watcher, "/w/a", "restore")["backward_seeks"], 2)
        self.assertEqual((watcher.processes, watcher.threads), (2, 2))

    def test_a_child_that_is_seen_before_its_fork_returns_has_its_parents_files(self):
        watcher = watched("""
7 openat(AT_FDCWD, "a", O_WRONLY|O_CREAT, 0666) = 3
7 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0}, 88 <unfinished ...>
8 write(3, ""..., 10) = 10
8 +++ exited with 0 +++
7 <... clone3 resumed> => {parent_tid=[8]}, 88) = 8
""")
        self.assertEqual(counts(watcher, "/w/a", "save"), {"opens": 1, "writes": 1, "written_bytes": 10})
        self.assertEqual((watcher.processes, watcher.threads), (1, 2))

    def test_an_inherited_descriptor_belongs_to_the_file_that_it_names(self):
        watcher = watched("""
7 write(5</w/log>, ""..., 10) = 10
7 lseek(5</w/log>, 3, SEEK_SET) = 3
7 read(5</w/other>, ""..., 10) = 10
7 write(5<socket:[99]>, ""..., 10) = 10
7 write(1</dev/null>, ""..., 10) = 10
7 write(6</dev/shm/x>, ""..., 10) = 10
""")
        self.assertEqual(counts(watcher, "/w/log", "save"), {"writes": 1, "written_bytes": 10, "seeks": 1})
        self.assertEqual(sorted(watcher.files), ["/dev/shm/x", "/w/log", "/w/other"])

    def test_threads_that_read_their_own_parts_forwards_go_back_nowhere(self):
        lines = ['7 openat(AT_FDCWD</w>, "a", O_RDONLY) = 3</w/a>']
        lines += [f"7 clone(flags=CLONE_VM|CLONE_FILES|CLONE_THREAD) = {thread}" for thread in (8, 9)]
        for at in (0, 10, 20):
            lines += [f'9 pread64(3</w/a>, ""..., 10, {at + 100}) = 10', f'8 pread64(3</w/a>, ""..., 10, {at}) = 10']
        self.assertNotIn("backward_offsets", counts(watched("\n".join(lines)), "/w/a", "restore"))
        lines.append("8 preadv(3</w/a>, [...], 2, 29) = 10")
        self.assertEqual(counts(watched("\n".join(lines)), "/w/a", "restore")["backward_offsets"], 1)

    def test_a_renamed_file_is_known_by_its_last_name(self):
        watcher = watched("""
7 openat(AT_FDCWD</w>, "d/a.tmp", O_WRONLY|O_CREAT, 0666) = 3</w/d/a.tmp>
7 write(3</w/d/a.tmp>, ""..., 10) = 10
7 openat(AT_FDCWD</w>, "d/a", O_WRONLY|O_CREAT, 0666) = 4</w/d/a>
7 write(4</w/d/a>, ""..., 1) = 1
7 chdir("d") = 0
7 rename("a.tmp", "a") = 0
7 write(3</w/d/a>, ""..., 10) = 10
7 write(4</w/d/a>(deleted), ""..., 1) = 1
7 renameat2(AT_FDCWD</w/d>, "../d", AT_FDCWD</w/d>, "../final", RENAME_NOREPLACE) = 0
7 fsync(3</w/final/a>) = 0
""")
        self.assertEqual(list(watcher.files), ["/w/final/a"])
        self.assertEqual(
            counts(watcher, "/w/final/a", "save"), {"opens": 2, "writes": 4, "written_bytes": 22, "syncs": 1}
        )

    def test_copies_within_the_kernel_and_native_asynchronous_requests_count(self):
        watcher = watched("""
7 openat(AT_FDCWD</w>, "a", O_RDWR|O_CREAT, 0666) = 3</w/a>
7 openat(AT_FDCWD</w>, "b", O_RDONLY) = 4</w/b>
7 copy_file_range(4</w/b>, NULL, 3</w/a>, NULL, 100, 0) = 60
7 sendfile(3</w/a>, 4</w/b>, [0] => [40], 100) = 40
7 io_submit(0x7f, 2, [{aio_data=0, aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=3</w/a>, aio_buf=""..., \
aio_nbytes=4096, aio_offset=8192}, {aio_data=0, aio_lio_opcode=IOCB_CMD_PREAD, aio_fildes=3</w/a>, aio_buf=0x1, \
aio_nbytes=512, aio_offset=0}]) = 2
""")
        self.assertEqual(
            counts(watcher, "/w/a", "save"),
            {
                "opens": 1,
                "writes": 3,
                "written_bytes": 60 + 40 + 4096,
                "reads": 1,
                "read_bytes": 512,
                "backward_offsets": 1,
            },
        )
        self.assertEqual(counts(watcher, "/w/b", "restore"), {"opens": 1, "reads": 2, "read_bytes": 100})

    def test_what_strace_does_not_see_is_told(self):
        watcher = watched("""
7 openat(AT_FDCWD</w>, "a", O_RDONLY) = 3</w/a>
7 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3</w/a>, 0) = 0x7f0000000000
7 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000
7 io_uring_setup(64, {flags=0, sq_thread_cpu=0}) = 5<anon_inode:[io_uring]>
7 sync() = 0
""")
        found = results.document(watcher, results.chooser([], False), {"exit_status": 0, "directories": []})
        self.assertEqual(found["unseen"], {"io_urings": 1, "mapped_files": ["/w/a"]})
        text = results.table(found)
        for part in ("io_uring was set up", "mapped into memory (mmap), /w/a", "1 call of sync(2)"):
            self.assertIn(part, text)

    def test_what_the_program_consists_of_is_left_out_unless_it_is_wanted(self):
        watcher = watched("""
7 openat(AT_FDCWD</w>, "/usr/lib/x.so", O_RDONLY) = 3</usr/lib/x.so>
7 read(3</usr/lib/x.so>, ""..., 10) = 10
7 openat(AT_FDCWD</w>, "m.py", O_WRONLY|O_CREAT) = 3</w/m.py>
7 openat(AT_FDCWD</w>, "data", O_RDONLY) = 3</w/data>
7 openat(AT_FDCWD</w>, "/else", O_RDONLY) = 3</else>
7 openat(AT_FDCWD</w>, "/w", O_RDONLY|O_DIRECTORY) = 4</w>
""")

        def chosen(directories, everything):
            counts = results.chooser(directories, everything)
            return [file["path"] for file in results.document(watcher, counts, {})["files"]]

        self.assertEqual(chosen([], False), ["/else", "/w/data", "/w/m.py"])
        self.assertEqual(chosen([], True), ["/else", "/usr/lib/x.so", "/w/data", "/w/m.py"])
        self.assertEqual(chosen(["/w"], False), ["/w/data", "/w/m.py"])


PROGRAM = """
import os, threading
fd = os.open("a.tmp", os.O_CREAT | os.O_WRONLY)
os.write(fd, b"x" * 70000)
def part():
    os.pwrite(fd, b"y" * 1000, 0)
thread = threading.Thread(target=part)
thread.start()
thread.join()
os.fsync(fd)
os.rename("a.tmp", "a")
if os.fork() == 0:
    fd = os.open("a", os.O_RDONLY)
    while os.read(fd, 4096):
        pass
    os.lseek(fd, 0, 0)
    os._exit(0)
os.wait()
print("done")
raise SystemExit(5)
"""


class CommandTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(os.path.realpath(temporary.name))

    def profile(self, *arguments, **environment):
        return subprocess.run(
            [TAILRACE, "profile", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.root,
            env={**os.environ, "TAILRACE_PYTHON": sys.executable, **environment},
        )

    def test_a_program_of_known_calls_is_counted_right(self):
        self.need_strace()
        done = self.profile("--dir", ".", "--json", "-o", "io.json", "--", sys.executable, "-c", PROGRAM)
        self.assertEqual((done.returncode, done.stderr), (5, "done\n"))
        found = json.loads(done.stdout)
        self.assertEqual(found, json.loads((self.root / "io.json").read_text()))
        self.assertEqual((found["exit_status"], found["processes"], found["threads"]), (5, 2, 3))
        (file,) = found["files"]
        self.assertEqual(file["path"], str(self.root / "a"))
        save, restore = file["save"], file["restore"]
        self.assertEqual([save[key] for key in ("opens", "writes", "written_bytes", "syncs")], [1, 2, 71000, 1])
        self.assertEqual(save["write_sizes"], {"512": 1, "65536": 1})
        self.assertEqual([restore[key] for key in ("opens", "reads", "read_bytes")], [1, 19, 70000])
        self.assertEqual([restore["seeks"], restore["backward_seeks"]], [1, 1])
        # A result that is there is kept, and the command is not run.
        again = self.profile("-o", "io.json", "--", "touch", "witness")
        self.assertEqual((again.returncode, (self.root / "witness").exists()), (2, False))
        self.assertIn("--force", again.stderr)

    def test_the_command_keeps_its_output_status_and_signals(self):
        self.need_strace()
        done = self.profile("sh", "-c", "echo out; echo text > file; kill -TERM $$")
        self.assertEqual((done.returncode, done.stdout), (128 + signal.SIGTERM, "out\n"))
        self.assertRegex(done.stderr, r"save +1 +1 +1 +5 B")

    def test_a_missing_command_strace_or_permission_is_a_sentence(self):
        self.assertEqual(self.profile().returncode, 2)
        done = self.profile("--", "no-such-program-anywhere")
        self.assertEqual(done.returncode, 3)
        self.assertIn("no-such-program-anywhere", done.stderr)
        only = self.root / "bin"
        only.mkdir()
        (only / "true").symlink_to("/bin/true")
        done = self.profile("--", "true", PATH=str(only))
        self.assertEqual(done.returncode, 4)
        self.assertIn("strace is not installed", done.stderr)
        refusing = only / "strace"
        refusing.write_text("#!/bin/sh\necho 'strace: ptrace(PTRACE_SEIZE): Operation not permitted' >&2\nexit 1\n")
        refusing.chmod(0o755)
        done = self.profile("--", "true", PATH=str(only))
        self.assertEqual(done.returncode, 4)
        self.assertIn("(ptrace(PTRACE_SEIZE): Operation not permitted)", done.stderr)
        self.assertIn("SYS_PTRACE", done.stderr)

    def need_strace(self):
        try:
            tracer.find_strace()
        except tracer.NotTraceable as error:
            print(f"{self.id()} is skipped: {error}")
            self.skipTest(str(error))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
