// The symbol is sound, the section is not there.
#include "bad.hpp"
BAD_MUST_NOT_RUN
BAD_SYMBOL(sound_descriptor("", "bad.no_section"))
