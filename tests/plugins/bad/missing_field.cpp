// No licence.
#include "bad.hpp"
BAD_SECTION(BAD_PLATFORM(BAD_EPOCH, TENON_ABI_STRING) BAD_OFFER("bad.missing_field"))
BAD_SYMBOL([] {
  tenon_plugin_v1_t plugin = sound_descriptor(bad_text, "bad.missing_field");
  plugin.licence = nullptr;
  return plugin;
}())
