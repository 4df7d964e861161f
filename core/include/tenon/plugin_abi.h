/* The plugin ABI: the one binary promise between Tenon and a shared library.
 *
 * Plain C, frozen in meaning and append-only in layout: every struct starts with its size, and a reader looks
 * only at fields inside it. A plugin exports exactly one symbol, the constant `tenon_plugin_v1`, and carries
 * the same identity as text in the ELF section `.tenon_abi`, which is read before the file is opened
 * (docs/plugins/abi.md). All strings are UTF-8, static, and owned by the plugin. No function here may let an
 * exception escape.
 */
#ifndef TENON_PLUGIN_ABI_H
#define TENON_PLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_ABI_EPOCH 0u        /* of the C++ interfaces above the plugin ABI; 0 is unstable */
#define TENON_SDK_VERSION "0.1.0" /* the package's version; the build checks that both agree */
#define TENON_PLUGIN_ABI_MAGIC 0x54454e4f4e763131ull /* "TENONv11" */
#define TENON_ABI_SECTION ".tenon_abi"
#define TENON_PLUGIN_SYMBOL "tenon_plugin_v1"

/* Where a called function writes why it failed. `code` follows tenon::ErrorKind. */
typedef struct tenon_error {
  uint32_t struct_size;
  int32_t code;
  char message[2040];
} tenon_error;

/* What the host hands to a plugin. `cxx_host` is a `tenon::Host*` of the same ABI epoch; a Host belongs to
 * one rank, so it is NULL during `init`, which belongs to the process. */
typedef struct tenon_host_v1 {
  uint32_t struct_size;
  uint32_t abi_epoch;
  const char* program_version;
  void* cxx_host;
} tenon_host_v1;

typedef enum tenon_option_type {
  TENON_OPTION_BOOL = 0,
  TENON_OPTION_INT = 1,
  TENON_OPTION_REAL = 2,
  TENON_OPTION_TEXT = 3,
  TENON_OPTION_PATH = 4,
  TENON_OPTION_INT_LIST = 5,
  TENON_OPTION_REAL_LIST = 6,
  TENON_OPTION_TEXT_LIST = 7,
  TENON_OPTION_COMPONENT = 8, /* a nested table with its own `type`; see component_kind */
  TENON_OPTION_SECTIONS = 9,  /* tables under names of the user's own; see section_options */
  TENON_OPTION_PATH_LIST = 10,
  TENON_OPTION_TABLES = 11 /* an array of tables; see section_options */
} tenon_option_type;

enum {
  TENON_OPTION_REQUIRED = 1u,
  TENON_OPTION_NAMED =
      2u, /* entries of a PATH_LIST are "NAME=PATH", and PATH may end in ":/PART" of a file */
  TENON_OPTION_LATER = 4u, /* a PATH that need not be there before the run starts */
  TENON_OPTION_LIST = 8u   /* a COMPONENT: an array of tables, each of them a component */
};

typedef struct tenon_option_v1 {
  uint32_t struct_size;
  uint32_t type; /* tenon_option_type */
  uint32_t flags;
  const char* name;
  const char* default_toml;   /* a TOML value, e.g. "1e-3" or "[0.9, 0.999]"; NULL = required or absent */
  double min, max;            /* inclusive range of a number or of each list element; NaN = open */
  const char* const* choices; /* NULL-terminated; NULL = any */
  const char* unit;           /* "" when none */
  const char* doc;
  const char* since;
  const char* component_kind;   /* for TENON_OPTION_COMPONENT: "sync/1" */
  const char* const* old_names; /* NULL-terminated; NULL = none */
  /* for TENON_OPTION_SECTIONS and TENON_OPTION_TABLES: what each of the tables may hold, NULL-terminated,
   * without components and tables */
  const struct tenon_option_v1* const* section_options;
  uint32_t length; /* entries that a list has; 0 = any number */
} tenon_option_v1;

/* What a run has to know of a component before it starts. Other bits mean nothing. */
enum {
  /* reads or writes tensors of the device itself, as host memory: no device with memory of its own */
  TENON_CAP_HOST = 1ull << 0,
  TENON_CAP_NONDETERMINISTIC = 1ull << 3, /* under a wall clock */
  TENON_CAP_HOGWILD = 1ull << 4,          /* tolerates concurrent writers of weights and state */
  TENON_CAP_SURVIVES_DEATH = 1ull << 7    /* transport: the other ranks go on when one dies */
};

/* An input or output of a layer. */
typedef struct tenon_port_v1 {
  uint32_t struct_size;
  uint32_t flags;     /* tenon_port_flags */
  const char* name;   /* "q" */
  const char* dtypes; /* "f32 f64", in words; "" = any */
  const char* shape;  /* "[..., time, width]": a word per dimension, "..." = any number of them; "" = any */
  const char* doc;    /* "" when the name says it */
} tenon_port_v1;

enum tenon_port_flags {
  TENON_PORT_OUTPUT = 1u,
  TENON_PORT_OPTIONAL = 2u, /* may be left out, with all after it */
  TENON_PORT_REPEATED = 4u  /* the last one: any number of them, one at least unless it is optional */
};

typedef enum tenon_maturity { TENON_EXPERIMENTAL = 0, TENON_STABLE = 1, TENON_DEPRECATED = 2 } tenon_maturity;

typedef struct tenon_component_v1 {
  uint32_t struct_size;
  uint32_t maturity;                     /* tenon_maturity */
  const char* kind;                      /* "optimizer/1" */
  const char* id;                        /* lower case, digits, '_' */
  const char* const* aliases;            /* NULL-terminated; NULL = none */
  const char* summary;                   /* one line */
  const tenon_option_v1* const* options; /* NULL-terminated; NULL = none */
  uint64_t capabilities;
  const char* const* requirements; /* NULL-terminated, e.g. "cuda>=12"; NULL = none */
  /* `options` is a `const tenon::Options*`; the result is the interface pointer of the kind. NULL = failed,
   * see err. */
  void* (*create)(const void* options, const tenon_host_v1* host, tenon_error* err);
  void (*destroy)(void* component);
  void* (*query)(void* component, const char* interface_id); /* NULL = not offered */
  const tenon_port_v1* const*
      ports; /* of a layer: inputs, then outputs, NULL-terminated; NULL = not declared */
} tenon_component_v1;

typedef struct tenon_plugin_v1 {
  uint64_t magic;
  uint32_t struct_size;
  uint32_t abi_epoch;
  const char* abi_tag; /* the text of the .tenon_abi section, for systems without ELF */
  const char* id;      /* "vendor.name" */
  const char* version; /* "1.2.3" */
  const char* summary;
  const char* vendor;
  const char* licence; /* SPDX */
  const char* url;
  /* init and shutdown come in pairs, one pair per runtime of the process, and pairs may nest; after a failed
   * init no shutdown follows. */
  int (*init)(const tenon_host_v1* host, tenon_error* err); /* 0 = ok; NULL = nothing to do */
  void (*shutdown)(void);                      /* joins threads, frees devices; NULL = nothing to do */
  const tenon_component_v1* const* components; /* NULL-terminated */
  const char* const* needs; /* other plugins, NULL-terminated, e.g. "acme.rope >= 0.2"; NULL = none */
} tenon_plugin_v1_t;

#ifdef __cplusplus
}
#endif
#endif /* TENON_PLUGIN_ABI_H */
