// Built for epoch 0; refused by every program of a later epoch.
#include "bad.hpp"
BAD_MUST_NOT_RUN
BAD_SECTION(BAD_PLATFORM("0", TENON_ABI_STRING) BAD_OFFER("bad.old_epoch"))
BAD_SYMBOL(sound_descriptor(bad_text, "bad.old_epoch"))
