/* For programs that include "include/veloc.h". */
#include "../veloc.h"
