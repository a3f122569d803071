"""Programs for VELOC that run alone: one go and three goes end with the same bits, and a file is all it takes.

single_test.py --program veloc_single --tool tailrace
"""

import argparse
import os
import subprocess
import tempfile


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def file_mode(program, top):
    """A path goes into a buffer of 1024 bytes, and a longer one nowhere."""
    for name, scratch, outcome in (("file", "scratch", "saved"), ("long", "/".join(["s" * 200] * 5), "not routed")):
        path = os.path.join(top, f"{name}.cfg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"scratch = {top}/{scratch}\npersistent = {top}/{name}\nmode = async\n")
        assert run(program, path, "file") == [outcome], name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--tool")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tailrace veloc ") as top:
        configs = {}
        for name in ("whole", "parts"):
            configs[name] = os.path.join(top, f"{name}.cfg")
            with open(configs[name], "w", encoding="utf-8") as file:
                file.write(f"scratch = {top}/{name}-scratch\npersistent = {top}/{name}\n")
                file.write("mode = async\nmax_versions = 2\n")
        whole = run(options.program, configs["whole"], "30")
        parts = [run(options.program, configs["parts"], *steps) for steps in (("10",), ("20", "leave"), ("30",))]
        assert [lines[0] for lines in parts] == ["from 0", "from 10", "from 20"], parts
        assert parts[-1][1] == whole[1], (whole, parts)
        file_mode(options.program, top)
        if options.tool:
            listing = "\n".join(run(options.tool, "ls", os.path.join(top, "parts", "plate", "0")))
            assert "30" in listing and "29" in listing and "28" not in listing, listing
    print("passed")


main()
