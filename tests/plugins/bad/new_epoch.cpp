// Built for an epoch that this program does not know yet.
#include "bad.hpp"
BAD_MUST_NOT_RUN
BAD_SECTION(BAD_PLATFORM("4095", TENON_ABI_STRING) BAD_OFFER("bad.new_epoch"))
BAD_SYMBOL(sound_descriptor(bad_text, "bad.new_epoch"))
