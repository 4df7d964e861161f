// The inline namespace that carries the ABI epoch in every C++ symbol above the plugin ABI.
// A plugin built for another epoch fails to link against this core instead of misbehaving in it.
#pragma once

#include <tenon/plugin_abi.h>

#define TENON_ABI_BEGIN \
  namespace tenon {     \
  inline namespace abi_v0 {
#define TENON_ABI_END \
  }                   \
  }
