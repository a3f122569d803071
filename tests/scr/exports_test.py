"""libscr.so and libscrf.so have the sonames and exactly the names of SCR's: exports_test.py LIBSCR LIBSCRF HEADER LIST

Programs that were linked with SCR ask for these. A name that goes breaks them; one that comes is added to the list.
"""

import re
import subprocess
import sys


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(library):
    return {line.split()[-1] for line in said("nm", "-D", "--defined-only", library).splitlines()}


def main():
    scr, scrf, header, kept_list = sys.argv[1:5]
    names = exported(scr) | exported(scrf)
    with open(header, encoding="utf-8") as file:
        declared = set(re.findall(r"^(?:int|char\*|const char\*) (SCR_\w+)\(", file.read(), re.M))
    with open(kept_list, encoding="utf-8") as file:
        kept = set(file.read().splitlines())
    bad = [f"declared and not exported: {name}" for name in sorted(declared - names)]
    bad += [f"exported no more: {name}" for name in sorted(kept - names)]
    bad += [f"not in {kept_list}: {name}" for name in sorted(names - kept)]
    # Fortran has neither a format for its texts nor another name for the same.
    bad += [f"not in Fortran: {name}" for name in sorted(declared - {"SCR_Configf"})
            if name.lower() + "_" not in names]
    for library, wanted in ((scr, "libscr.so"), (scrf, "libscrf.so")):
        soname = re.search(r"SONAME\).*\[(.*)\]", said("readelf", "-d", library))
        if not soname or soname[1] != wanted:
            bad.append(f"the soname is {soname and soname[1]}, not {wanted}")
    if len(declared) != 18:
        bad.append(f"{len(declared)} declarations were found in {header}")
    if bad:
        sys.exit("\n".join(bad))
    print(f"{len(names)} names are exported")


main()
