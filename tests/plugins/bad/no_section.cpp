// The symbol is valid, the section is missing.
#include "bad.hpp"
BAD_MUST_NOT_RUN
BAD_SYMBOL(sound_descriptor("", "bad.no_section"))
