// The section is valid, the symbol is missing.
#include "bad.hpp"
BAD_SECTION(BAD_PLATFORM(BAD_EPOCH, TENON_ABI_STRING) BAD_OFFER("bad.no_symbol"))
