"""What the benchmarks of checkpoints do before a load, and how they measure memory: files that are dropped from the
page cache or read into it, how much of them is cached, and the most memory that a process had."""

import ctypes
import mmap
import os
import threading


def drop_from_cache(place):
    for directory, _, names in os.walk(place):
        for name in names:
            file = os.open(os.path.join(directory, name), os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def read_into_cache(place):
    for directory, _, names in os.walk(place):
        for name in names:
            with open(os.path.join(directory, name), "rb", buffering=0) as file:
                while file.read(8 << 20):
                    pass


def cached_share(place):
    """The share of the files that lies in the page cache."""
    cached = pages = 0
    for directory, _, names in os.walk(place):
        for name in names:
            path = os.path.join(directory, name)
            size = os.path.getsize(path)
            if size == 0:
                continue
            with open(path, "rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
                states = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
                first = ctypes.c_char.from_buffer(mapped)
                place_of_it = ctypes.c_void_p(ctypes.addressof(first))
                failed = ctypes.CDLL(None).mincore(place_of_it, ctypes.c_size_t(size), states)
                del first
            if failed:
                return float("nan")  # not known
            cached += sum(state & 1 for state in states)
            pages += len(states)
    return cached / max(1, pages)


class PeakMemory:
    """The most memory that this process had above its memory at the start, by the kernel's high-water
    mark, which includes pages of mapped files."""

    def __enter__(self):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self.start = read_memory("VmRSS")
        return self

    def __exit__(self, *exception):
        self.bytes = max(0, read_memory("VmHWM") - self.start)


class PrivatePeakMemory(PeakMemory):
    """Also has `private_bytes`, without the pages of mapped files. The kernel has no mark for these, so a
    thread looks every few milliseconds."""

    def __enter__(self):
        super().__enter__()
        self.private_bytes = 0
        self.over = threading.Event()
        self.watcher = threading.Thread(target=self.watch, args=(read_memory("RssAnon"),))
        self.watcher.start()
        return self

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self.over.set()
        self.watcher.join()

    def watch(self, start):
        while not self.over.wait(0.005):
            self.private_bytes = max(self.private_bytes, read_memory("RssAnon") - start)


def read_memory(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field + ":"))
