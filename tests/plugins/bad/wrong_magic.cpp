// Another object under the right name.
#include "bad.hpp"
BAD_SECTION(BAD_PLATFORM(BAD_EPOCH, TENON_ABI_STRING) BAD_OFFER("bad.wrong_magic"))
BAD_SYMBOL([] {
  tenon_plugin_v1_t plugin = sound_descriptor(bad_text, "bad.wrong_magic");
  plugin.magic = 1;
  return plugin;
}())
