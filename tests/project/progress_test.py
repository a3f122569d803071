#!/usr/bin/env python3
"""benchmarks/progress.py: what is said on a terminal and elsewhere, and when. The clock is the test's."""
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
sys.dont_write_bytecode = True

import progress  # noqa: E402


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Flushed(io.StringIO):
    """What a reader of the file would see: nothing before it is flushed."""
    seen = ""

    def flush(self):
        self.seen = self.getvalue()


class ProgressTest(unittest.TestCase):
    def setUp(self):
        self.now = 100.0

    def steps(self, stream, count=3):
        told = progress.Progress(count, stream, lambda: self.now)
        for number in range(count):
            told.begin(f"step {number}")
            self.now += 60 * (number + 1)
            told.end(f"step {number}")
            yield
        told.close()

    def test_elsewhere_every_step_has_a_line_at_once(self):
        log = Flushed()
        expected = ["1 of 3 done: step 0, 60 s; about 2 min left", "2 of 3 done: step 1, 2 min; about 90 s left",
                    "3 of 3 done: step 2, 3 min"]
        for number, _ in enumerate(self.steps(log)):
            self.assertEqual(log.seen.splitlines(), expected[:number + 1])
        self.assertEqual(log.getvalue().splitlines(), expected)

    def test_a_terminal_has_one_line_that_goes(self):
        terminal = Terminal()
        list(self.steps(terminal))
        said = terminal.getvalue()
        self.assertNotIn("\n", said)
        self.assertIn("0 of 3 done; now step 0", said)
        self.assertIn("2 of 3 done; about 90 s left; now step 2", said)
        self.assertTrue(said.endswith("\r\x1b[K"))

    def test_times_are_short(self):
        self.assertEqual([progress.duration(seconds) for seconds in (0, 99, 100, 5900, 6000, 7300)],
                         ["0 s", "99 s", "2 min", "98 min", "1 h 40 min", "2 h 2 min"])


if __name__ == "__main__":
    unittest.main()
