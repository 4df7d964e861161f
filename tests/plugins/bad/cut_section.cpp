// The text of the section is truncated.
#include "bad.hpp"
BAD_MUST_NOT_RUN
BAD_SECTION(BAD_PLATFORM(BAD_EPOCH, TENON_ABI_STRING) "plugin bad.cut_section 1.0.0\n")
BAD_SYMBOL(sound_descriptor(bad_text, "bad.cut_section"))
