#!/usr/bin/env python3
"""The table of settings in docs/settings.md is what `tailrace config --json` says.

    config_table_test.py --tailrace PATH --page docs/settings.md           fails when they differ
    config_table_test.py --tailrace PATH --page docs/settings.md --write   puts the right table into it
"""
import argparse
import json
import subprocess
import sys

BEGIN = "<!-- begin: settings, from `tailrace config --json` -->\n"
END = "<!-- end: settings -->\n"


def table(keys):
    lines = ["| key | value | default | |", "|---|---|---|---|"]
    for key in keys:
        kind = key["type"].replace(" | ", ", ")
        default = "`%s`" % key["default"] if key["default"] else ""
        lines.append("| `%s` | %s | %s | %s |"
                     % (key["name"], kind, default, key["help"].replace("|", "\\|")))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tailrace", required=True)
    parser.add_argument("--page", required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    said = subprocess.run([options.tailrace, "config", "--json"], stdout=subprocess.PIPE, check=True).stdout
    right = table(json.loads(said)["keys"])
    with open(options.page, encoding="utf-8") as f:
        text = f.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        print("%s has no place for the table of settings" % options.page)
        return 1
    before, rest = text.split(BEGIN)
    found, after = rest.split(END)
    if found == right:
        return 0
    if options.write:
        with open(options.page, "w", encoding="utf-8") as f:
            f.write(before + BEGIN + right + END + after)
        return 0
    print("the table of settings in %s differs from `tailrace config --json`:" % options.page)
    for line in found.splitlines():
        if line not in right.splitlines():
            print("  page     " + line)
    for line in right.splitlines():
        if line not in found.splitlines():
            print("  tailrace " + line)
    print("tests/project/config_table_test.py --tailrace %s --page %s --write puts it right"
          % (options.tailrace, options.page))
    return 1


if __name__ == "__main__":
    sys.exit(main())
