"""tailrace convert SOURCE TARGET. Exit status as the command's: 0 ok, 1 damaged, 2 usage, 3 not found,
4 refused."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time

from tailrace._errors import Code, Error
from tailrace.convert import FORMATS, SOURCES, _sources, convert, format_of, target_format

EPILOG = """formats (the source's follows from what it holds, the target's from its ending or --to):
  torch         a file of torch.save                      .pt .pth .bin .ckpt
  ranks         a directory with a torch.save file for each rank: rank0.pt, rank1.pt, ...
  safetensors   tensors only, flat names                  .safetensors
  dcp           a directory of torch.distributed.checkpoint
  tailrace      a file of tailrace.torch.save             .tailrace
                for several ranks: a directory as a session writes it
  tailrace-dcp  a directory of tailrace.torch.StorageWriter, for dcp.load
  veloc         source only: a version that VELOC has written, by the path of any one of its files

Memory is bounded by the largest tensor. TARGET appears complete and synced, or not at all. Pickle is read only as far
as torch's weights_only does.

examples:
  tailrace convert checkpoint-100/ model.safetensors
  tailrace convert --to tailrace-dcp --files 2 dcp-checkpoint/ ckpt/step-100
  tailrace convert --rank 0 /scratch/run7 rank0.pt
  tailrace convert --to ranks /persistent/heat-0-40.dat out/"""
STATUS = {Code.CORRUPT: 1, Code.INVALID_ARGUMENT: 2, Code.ALREADY_EXISTS: 2, Code.NOT_FOUND: 3}


class Progress(threading.Thread):
    """A line on a terminal's standard error with the bytes that have been written. It prints nothing
    elsewhere."""

    def __init__(self, files: list[str], target: str) -> None:
        super().__init__(daemon=True)
        self._total = max(1, sum(map(size_of, files)))
        self._partial = target + ".partial"
        self._done = threading.Event()
        self._began = time.monotonic()

    def run(self) -> None:
        while not self._done.wait(0.2):
            written = size_of(self._partial) + size_of(self._partial + ".unfinished")
            share = min(1.0, written / self._total)
            what = f"writing, {written >> 20} MiB" if written else "reading"
            rate = written / 2**20 / max(1e-3, time.monotonic() - self._began)
            bar = "#" * int(30 * share)
            print(
                f"\r[{bar:30}] {100 * share:3.0f} %  {what}, {rate:.0f} MiB/s   ", end="", file=sys.stderr, flush=True
            )

    def end(self) -> None:
        self._done.set()
        self.join()
        print("\r" + " " * 78 + "\r", end="", file=sys.stderr, flush=True)


def size_of(path: str) -> int:
    """The size of a file, or of all files below a directory. Files that are removed meanwhile do not
    count."""
    total = 0
    try:
        if not os.path.isdir(path):
            return os.stat(path).st_size
        for directory, _, names in os.walk(path):
            total += sum(os.stat(os.path.join(directory, name)).st_size for name in names)
    except OSError:
        pass
    return total


def size_text(nbytes: int) -> str:
    if nbytes < 2**10:
        return f"{nbytes} B"
    power = min((nbytes.bit_length() - 1) // 10, 4)
    return f"{nbytes / 2 ** (10 * power):.4g} {'KMGT'[power - 1]}iB"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tailrace convert",
        description="Convert a checkpoint into another format.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE", help="the checkpoint to read: a file or a directory")
    parser.add_argument("target", metavar="TARGET", help="the file or directory to write; with --force it may exist")
    parser.add_argument("--from", choices=SOURCES, dest="source_format", help="format of the source")
    parser.add_argument("--to", choices=FORMATS, help="format of the target")
    parser.add_argument("--rank", type=int, help="convert only this rank of a source of several ranks")
    parser.add_argument("--files", type=int, default=1, metavar="K", help="files of a tailrace directory (%(default)s)")
    parser.add_argument("--tensors-only", action="store_true", help="leave out everything but tensors, for safetensors")
    parser.add_argument("--meta", metavar="DIR", help="VELOC's directory `meta`: verify the checksums there")
    parser.add_argument("--force", action="store_true", help="replace an earlier target")
    options = parser.parse_args(arguments)
    progress = None
    try:
        source_format = options.source_format or format_of(options.source)
        to = options.to or target_format(options.target)
        if sys.stderr.isatty():
            files = _sources.files(options.source, source_format, options.rank)
            progress = Progress(files, os.path.normpath(options.target))
            progress.start()
        nbytes = convert(
            options.source,
            options.target,
            source_format=source_format,
            to=to,
            rank=options.rank,
            files=options.files,
            tensors_only=options.tensors_only,
            replace=options.force,
            meta=options.meta,
        )
    except Error as error:
        sentence, status = str(error), STATUS.get(error.code, 4)
    except KeyboardInterrupt:
        sentence, status = f"interrupted; nothing of '{options.target}' is left", 130
    else:
        sentence, status = "", 0
    finally:
        if progress is not None:
            progress.end()
    if status:
        print(f"tailrace: {sentence}", file=sys.stderr)
    else:
        print(f"{options.target}: {size_text(nbytes)} of tensors, from {source_format} to {to}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
