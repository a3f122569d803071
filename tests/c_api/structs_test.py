#!/usr/bin/env python3
"""Every struct that the C headers define is in the lists of layouts with all its fields, and can grow.

layout_test.cc compares sizes and offsets with the lists; a field that nobody wrote down there would be missing
on both sides. A struct grows by what it has reserved, and says so; the others must say that they never change.
"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
sys.path.insert(0, str(PROJECT / "scripts"))

import c_interface  # noqa: E402

LISTS = ("layout.txt", "mpi_layout.txt")
NEVER_CHANGE = {"tailrace_file_piece", "tailrace_memory_piece"}  # calls take arrays of them


def structs() -> dict[str, tuple[c_interface.Type, str]]:
    """Each struct with the words about it: those before it, and those at its reserved fields."""
    found = {}
    for item in (item for header in c_interface.read_all(PROJECT / "include") for item in header.items):
        for struct in item.types:
            if struct.kind == "struct":
                at_fields = [field.words for field in struct.fields if field.name == "reserved"]
                found[struct.name] = (struct, " ".join([*item.words, *at_fields]))
    return found


class StructsTest(unittest.TestCase):
    def test_every_field_is_in_the_lists_of_layouts(self) -> None:
        kept = [line.split(" at ")[0] for name in LISTS for line in (HERE / name).read_text().splitlines()]
        declared = []
        for name, (struct, _) in structs().items():
            declared += [f"{name}.{field.name}" for field in struct.fields] + [name]
        self.assertGreater(len(declared), 50)
        self.assertEqual(sorted(kept), sorted(declared))

    def test_a_struct_ends_with_what_is_reserved_and_says_so(self) -> None:
        for name, (struct, words) in structs().items():
            if name not in NEVER_CHANGE:
                self.assertEqual(struct.fields[-1].name, "reserved", name)
                self.assertIn("later versions", words.lower(), name)

    def test_the_others_never_change(self) -> None:
        without = {name for name, (s, _) in structs().items() if s.fields[-1].name != "reserved"}
        self.assertEqual(without, NEVER_CHANGE)


if __name__ == "__main__":
    unittest.main()
