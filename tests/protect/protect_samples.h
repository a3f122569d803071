// Samples of protect objects: for tests of the codec, for its golden files and for the seeds of the fuzz
// corpus.
#pragma once

#include <map>
#include <string>

#include "format/samples.h"
#include "protect/protect_file.h"

namespace tailrace::internal {

// A head with members of every kind: without parts, with many; any scheme.
ProtectHead random_protect_head(Random& random);

// The protect objects of the golden epoch, whose ranks are captured on three nodes. By file name. Node 2
// keeps node 1's part; node 0 keeps a piece of parity.
std::map<std::string, Bytes> golden_protect_objects();

}  // namespace tailrace::internal
