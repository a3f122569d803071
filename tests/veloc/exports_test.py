"""libveloc-client.so has the soname and exactly the names of VELOC's: exports_test.py LIBRARY HEADER LIST

Unmodified binaries ask for these. A name that goes breaks them; one that comes is added to the list.
"""

import re
import subprocess
import sys


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    library, header, kept_list = sys.argv[1:4]
    names = [line.split(maxsplit=2)[2] for line in said("nm", "-D", "--defined-only", "-C", library).splitlines()]
    exported = {re.sub(r"\(int, |\(ompi_communicator_t\*, ", "(MPI_Comm, ", name) for name in names}
    with open(header, encoding="utf-8") as file:
        declared = set(re.findall(r"^int (VELOC_\w+)\(", file.read(), re.M))
    with open(kept_list, encoding="utf-8") as file:
        kept = set(file.read().splitlines())
    bad = [f"declared and not exported: {name}" for name in sorted(declared - exported)]
    bad += [f"exported no more: {name}" for name in sorted(kept - exported)]
    bad += [f"not in {kept_list}: {name}" for name in sorted(exported - kept)]
    soname = re.search(r"SONAME\).*\[(.*)\]", said("readelf", "-d", library))
    if not soname or soname[1] != "libveloc-client.so":
        bad.append(f"the soname is {soname and soname[1]}")
    if len(declared) != 25:
        bad.append(f"{len(declared)} declarations were found in {header}")
    if bad:
        sys.exit("\n".join(bad))
    print(f"{len(exported)} names are exported")


main()
