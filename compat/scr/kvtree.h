// kvtree.h - the files in which SCR itself keeps what it knows (index.scr, halt.scr, flush.scr, summary.scr):
// a tree of keys. Pure.
//
// Numbers are big-endian. A file has a header of 20 bytes: the magic number 0x951fc3f5, type 1 and version 1
// in two bytes each, the bytes of the file in 8, and flags in 4. Then comes the tree: how many elements (4
// bytes), and of each its key, a zero, and the tree below it in the same form. A value is a key with nothing
// below it. If flag 1 is set, the last 4 bytes are the CRC-32 of all before them.
//
// The decoder treats every byte as hostile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace scr_on_tailrace {

struct Tree {
    std::string key;  // empty at the top
    std::vector<Tree> below;
};

// Whether the bytes begin like such a file.
bool is_kvtree(std::string_view bytes);
// Throws tailrace::Error if they are none.
Tree decode_kvtree(std::string_view bytes);

enum class Printed { tree, key_values };
// One line for each key, sorted, indented by two more for each level. With key_values a key with one value is
// a line `KEY = VALUE`. Control characters become \xNN.
std::string text_of(const Tree& tree, Printed how);

}  // namespace scr_on_tailrace
