// For programs that include "include/veloc.hpp".
#include "../veloc.hpp"
