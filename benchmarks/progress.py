"""Shows how far a benchmark is: a line on standard error for every finished step, with the time left.

On a terminal the line is written in place, and already says at a step's start what runs. Elsewhere
(a file, a job's log) every finished step gets a line of its own, which is flushed, so that a reader
sees that it goes on.
"""

import sys
import time


def duration(seconds):
    """7 s, 3 min, 1 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """The time left is computed from the mean of the finished steps. So steps of one kind should take
    turns."""

    def __init__(self, steps, stream=None, clock=time.monotonic):
        self.steps, self.done = steps, 0
        self.stream, self.clock = stream or sys.stderr, clock
        self.terminal = self.stream.isatty()
        self.first = self.last = clock()

    def begin(self, what):
        self.last = self.clock()
        if self.terminal:
            self.write(f"{self.done} of {self.steps} done{self.left()}; now {what}")

    def end(self, what):
        """Ends the step that began last. `what` is as given to begin()."""
        self.done += 1
        now = self.clock()
        self.write(f"{self.done} of {self.steps} done: {what}, {duration(now - self.last)}{self.left()}")

    def close(self):
        """Removes the line from a terminal."""
        if self.terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def left(self):
        if self.done == 0 or self.done >= self.steps:
            return ""
        each = (self.clock() - self.first) / self.done
        return f"; about {duration(each * (self.steps - self.done))} left"

    def write(self, line):
        self.stream.write(f"\r\x1b[K{line}" if self.terminal else f"{line}\n")
        self.stream.flush()
