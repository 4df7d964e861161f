// The layout of the plugin ABI, field by field: a promise to plugins that were built long ago. A struct only
// grows at its end, so lines are added here and never changed; a version that needs other offsets is a struct
// of another name.
#include <tenon/plugin_abi.h>

#include <cstddef>

namespace {

static_assert(sizeof(void*) == 8, "the plugin ABI is defined for 64-bit systems");
static_assert(TENON_PLUGIN_ABI_MAGIC == 0x54454e4f4e763131);

#define AT(type, field, offset) \
  static_assert(offsetof(type, field) == (offset), #type "." #field " may not move")
#define SIZE(type, size) static_assert(sizeof(type) == (size), #type " only grows: pin the new fields here")

AT(tenon_error, struct_size, 0);
AT(tenon_error, code, 4);
AT(tenon_error, message, 8);
SIZE(tenon_error, 2048);

AT(tenon_host_v1, struct_size, 0);
AT(tenon_host_v1, abi_epoch, 4);
AT(tenon_host_v1, program_version, 8);
AT(tenon_host_v1, cxx_host, 16);
SIZE(tenon_host_v1, 24);

AT(tenon_option_v1, struct_size, 0);
AT(tenon_option_v1, type, 4);
AT(tenon_option_v1, flags, 8);
AT(tenon_option_v1, name, 16);
AT(tenon_option_v1, default_toml, 24);
AT(tenon_option_v1, min, 32);
AT(tenon_option_v1, max, 40);
AT(tenon_option_v1, choices, 48);
AT(tenon_option_v1, unit, 56);
AT(tenon_option_v1, doc, 64);
AT(tenon_option_v1, since, 72);
AT(tenon_option_v1, component_kind, 80);
AT(tenon_option_v1, old_names, 88);
AT(tenon_option_v1, section_options, 96);
AT(tenon_option_v1, length, 104);
SIZE(tenon_option_v1, 112);

AT(tenon_port_v1, struct_size, 0);
AT(tenon_port_v1, flags, 4);
AT(tenon_port_v1, name, 8);
AT(tenon_port_v1, dtypes, 16);
AT(tenon_port_v1, shape, 24);
AT(tenon_port_v1, doc, 32);
SIZE(tenon_port_v1, 40);

AT(tenon_component_v1, struct_size, 0);
AT(tenon_component_v1, maturity, 4);
AT(tenon_component_v1, kind, 8);
AT(tenon_component_v1, id, 16);
AT(tenon_component_v1, aliases, 24);
AT(tenon_component_v1, summary, 32);
AT(tenon_component_v1, options, 40);
AT(tenon_component_v1, capabilities, 48);
AT(tenon_component_v1, requirements, 56);
AT(tenon_component_v1, create, 64);
AT(tenon_component_v1, destroy, 72);
AT(tenon_component_v1, query, 80);
AT(tenon_component_v1, ports, 88);
SIZE(tenon_component_v1, 96);

AT(tenon_plugin_v1_t, magic, 0);
AT(tenon_plugin_v1_t, struct_size, 8);
AT(tenon_plugin_v1_t, abi_epoch, 12);
AT(tenon_plugin_v1_t, abi_tag, 16);
AT(tenon_plugin_v1_t, id, 24);
AT(tenon_plugin_v1_t, version, 32);
AT(tenon_plugin_v1_t, summary, 40);
AT(tenon_plugin_v1_t, vendor, 48);
AT(tenon_plugin_v1_t, licence, 56);
AT(tenon_plugin_v1_t, url, 64);
AT(tenon_plugin_v1_t, init, 72);
AT(tenon_plugin_v1_t, shutdown, 80);
AT(tenon_plugin_v1_t, components, 88);
AT(tenon_plugin_v1_t, needs, 96);
SIZE(tenon_plugin_v1_t, 104);

// Values that old plugins hold.
static_assert(TENON_OPTION_BOOL == 0);
static_assert(TENON_OPTION_INT == 1);
static_assert(TENON_OPTION_REAL == 2);
static_assert(TENON_OPTION_TEXT == 3);
static_assert(TENON_OPTION_PATH == 4);
static_assert(TENON_OPTION_INT_LIST == 5);
static_assert(TENON_OPTION_REAL_LIST == 6);
static_assert(TENON_OPTION_TEXT_LIST == 7);
static_assert(TENON_OPTION_PATH_LIST == 10);
static_assert(TENON_OPTION_TABLES == 11);
static_assert(TENON_OPTION_COMPONENT == 8);
static_assert(TENON_OPTION_SECTIONS == 9);
static_assert(TENON_OPTION_REQUIRED == 1);
static_assert(TENON_EXPERIMENTAL == 0);
static_assert(TENON_STABLE == 1);
static_assert(TENON_DEPRECATED == 2);
static_assert(TENON_CAP_HOST == 1ull << 0);
static_assert(TENON_CAP_NONDETERMINISTIC == 1ull << 3);
static_assert(TENON_CAP_HOGWILD == 1ull << 4);
static_assert(TENON_CAP_SURVIVES_DEATH == 1ull << 7);
static_assert(TENON_PORT_OUTPUT == 1);
static_assert(TENON_PORT_OPTIONAL == 2);
static_assert(TENON_PORT_REPEATED == 4);

}  // namespace
