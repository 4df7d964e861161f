// Section and descriptor contradict each other.
#include "bad.hpp"
BAD_SECTION(BAD_PLATFORM(BAD_EPOCH, TENON_ABI_STRING) BAD_OFFER("bad.other_section"))
BAD_SYMBOL(sound_descriptor(bad_text, "bad.another_section"))
