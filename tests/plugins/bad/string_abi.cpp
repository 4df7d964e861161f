// Claims the old std::string: passing one would corrupt the heap.
#include "bad.hpp"
BAD_MUST_NOT_RUN
BAD_SECTION(BAD_PLATFORM(BAD_EPOCH, "old") BAD_OFFER("bad.string_abi"))
BAD_SYMBOL(sound_descriptor(bad_text, "bad.string_abi"))
