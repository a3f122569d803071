"""libfti.so has the soname and exactly the names of FTI's: exports_test.py LIBFTI HEADER LIST

Programs that were linked with FTI ask for these. A name that goes breaks them; one that comes is added to the list.
"""

import re
import subprocess
import sys


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    library, header, kept_list = sys.argv[1:4]
    names = {line.split()[-1] for line in said("nm", "-D", "--defined-only", library).splitlines()}
    with open(header, encoding="utf-8") as file:
        text = file.read()
    declared = set(re.findall(r"^(?:extern )?[A-Za-z]\w*[ *]+(FTI_\w+)[(;]", text, re.M))
    with open(kept_list, encoding="utf-8") as file:
        kept = set(file.read().splitlines())
    bad = [f"declared and not exported: {name}" for name in sorted(declared - names)]
    bad += [f"exported no more: {name}" for name in sorted(kept - names)]
    bad += [f"not in {kept_list}: {name}" for name in sorted(names - kept)]
    soname = re.search(r"SONAME\).*\[(.*)\]", said("readelf", "-d", library))
    if not soname or soname[1] != "libfti.so":
        bad.append(f"the soname is {soname and soname[1]}, not libfti.so")
    # 37 functions, 11 types and FTI_COMM_WORLD.
    if len(declared) != 49:
        bad.append(f"{len(declared)} declarations were found in {header}: {sorted(declared)}")
    if bad:
        sys.exit("\n".join(bad))
    print(f"{len(names)} names are exported")


main()
