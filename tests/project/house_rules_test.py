#!/usr/bin/env python3
"""The project keeps its house rules, and each rule complains when it is broken (seen on a planted tree)."""
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import house_rules

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = "tailrace_part(base)\ntailrace_part(storage base)\ntailrace_part(transport base)\n"

# rule -> (a file that breaks it, its text, what the complaint says), and a file that is allowed.
BREAKS = {
    "mpi_stays_in_its_files": (
        "src/transport/wire.cc", "#include <mpi.h>\n", "only files named *mpi* may",
        "src/transport/mpi_wire.cc", "#include <mpi.h>\n"),
    "liburing_stays_in_one_file": (
        "src/storage/second.cc", "#include <liburing.h>\n", "and so does src/storage/first.cc:1",
        "src/storage/first.cc", "#include <liburing.h>\n"),
    "parts_see_only_their_layers": (
        "src/base/low.cc", '#include "storage/storage.h"\n', "base may see only: nothing",
        "src/storage/high.cc", '#include "base/status.h"\n'),
    "library_never_exits_or_prints": (
        "src/base/rude.cc", "void f() { std::exit(1); }\n", "exit: the library leaves",
        "src/base/polite.cc", 'int exit_code();  // exit(1)\nconst char* t = "abort()";\n'),
    "files_are_small": (
        "src/base/long.cc", "int a;\n" * 601, "601 lines",
        "src/base/short.cc", "int a;\n" * 600),
    "no_machine_paths": (
        "docs/where.md", "see /" + "home/jane/notes\n", "names /" + "home/",
        "docs/there.md", "see https://example.org/home/ and framework/ and /dev/shm/\n"),
    "threads_and_time_come_from_one_part": (
        "src/base/own.cc", "std::mutex lock;  // std::thread\n", "std::mutex; src/threads has",
        "src/threads/mutex.h", "std::mutex lock;\n"),
    "mutexes_say_what_they_guard": (
        "src/base/mute.h", "    mutable Mutex mutex_;\n    int a_;\n", "nothing is GUARDED_BY(mutex_)",
        "src/base/plain.h", "    Mutex mutex_;\n    int a_ GUARDED_BY(mutex_);\n"),
    "maps_name_what_is_there": (
        "docs/design.md", "`base/there`\n| it ends | `base/there.cc` | `Name::end` |\n", "end is not in base/there.cc",
        "src/base/there.cc", "void begin();\n"),
    "prose_keeps_its_columns": (
        "docs/wide.md", "word " * 21 + "\n", "105 columns",
        "docs/narrow.md", "word " * 20 + "\n```sh\n" + "word " * 30 + "\n```\n| " + "word " * 30 + "|\n"),
    "no_name_looks_like_an_option": (
        "--help/file.md", "", "begins with a hyphen",
        "src/base/a-b.md", ""),
    "nothing_is_left_open": (
        "src/base/later.cc", "// TO" + "DO: think\n", "TO" + "DO",
        "src/base/now.cc", "// thought\n"),
}


class ProjectKeeps(unittest.TestCase):
    pass


class RuleComplains(unittest.TestCase):
    def test_every_rule_has_a_planted_case(self):
        self.assertEqual(sorted(BREAKS), sorted(r.__name__ for r in house_rules.RULES))


    def test_a_folder_may_not_have_too_many_files(self):
        self.assertEqual(house_rules.folders_are_small(house_rules.Tree(PROJECT)), [])
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "src/base"))
            for name in ("a.cc", "a.h", "b.h", "CMakeLists.txt"):
                open(os.path.join(root, "src/base", name), "w").close()
            tree = house_rules.Tree(root)
            self.assertEqual(house_rules.folders_are_small(tree, 3), [])
            self.assertEqual(house_rules.folders_are_small(tree, 2), ["src/base: 3 files; a folder has 2 at most"])

    def test_prose_fills_its_lines(self):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "docs"))
            with open(os.path.join(root, "docs/lone.md"), "w") as f:
                f.write("# Short\n\n- one\n- two\n\n" + "word " * 19 + "\n`lone`\nand " + "word " * 18 + "\nend.\n")
            self.assertEqual(house_rules.prose_keeps_its_columns(house_rules.Tree(root)),
                             ["docs/lone.md:8: the line before has room; wrap the paragraph again"])

    def test_a_map_may_not_name_a_file_that_is_gone(self):
        with tempfile.TemporaryDirectory() as root:
            for path, text in (("src/base/there.cc", ""), ("CONTRIBUTING.md", "see\n`base/gone.cc`, `base/there`\n")):
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w") as f:
                    f.write(text)
            self.assertEqual(house_rules.maps_name_what_is_there(house_rules.Tree(root)),
                             ["CONTRIBUTING.md:2: src/base/gone.cc is not there"])


def add_tests(rule):
    def project_keeps(self):
        tree = house_rules.Tree(PROJECT)
        self.assertGreater(len(tree.paths), 50, "the project's files were not found")
        self.assertEqual(rule(tree), [])

    def complains(self):
        bad_path, bad_text, says, good_path, good_text = BREAKS[rule.__name__]
        with tempfile.TemporaryDirectory() as root:
            for path, text in (("src/CMakeLists.txt", PARTS), (bad_path, bad_text), (good_path, good_text)):
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w") as f:
                    f.write(text)
            complaints = rule(house_rules.Tree(root))
        self.assertEqual(len(complaints), 1, complaints)
        self.assertTrue(complaints[0].startswith(bad_path), complaints)
        self.assertIn(says, complaints[0])

    project_keeps.__doc__ = rule.__doc__
    complains.__doc__ = rule.__doc__
    setattr(ProjectKeeps, "test_" + rule.__name__, project_keeps)
    setattr(RuleComplains, "test_" + rule.__name__, complains)


for each in house_rules.RULES:
    add_tests(each)

if __name__ == "__main__":
    unittest.main()
