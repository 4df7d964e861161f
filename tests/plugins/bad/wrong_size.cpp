// A descriptor shorter than the first version ever was.
#include "bad.hpp"
BAD_SECTION(BAD_PLATFORM(BAD_EPOCH, TENON_ABI_STRING) BAD_OFFER("bad.wrong_size"))
BAD_SYMBOL([] {
  tenon_plugin_v1_t plugin = sound_descriptor(bad_text, "bad.wrong_size");
  plugin.struct_size = 16;
  return plugin;
}())
