// The only file that includes Boost.DLL: BOOST_DLL_USE_STD_FS must be the same wherever it is included.
#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>
#include <vector>  // Boost.DLL 1.74 forgets it

#include "plugin/loader.hpp"
#include "plugin/process_end.hpp"

#include "plugin/descriptor.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <dlfcn.h>
#include <fmt/format.h>

namespace tenon::plugin {
namespace {

namespace fs = std::filesystem;

/// Longest init of a plugin in a program: opening devices takes seconds.
constexpr double kInitSeconds = 60;

// Boost wraps dlerror's text in its own and ends with a made-up errno:
// "boost::dll::shared_library::load() failed (dlerror system message: FILE: TEXT): Bad file descriptor".
// dlerror begins with the file, unless it is about another one ("libx.so.3: cannot open ...").
std::string loader_text(const std::exception& error, const fs::path& file) {
  std::string_view text = error.what();
  const auto drop_front = [&text](std::string_view part) {
    if (const std::size_t at = text.find(part); at != std::string_view::npos)
      text.remove_prefix(at + part.size());
  };
  const auto drop_back = [&text](std::string_view part) {
    if (text.size() >= part.size() && text.substr(text.size() - part.size()) == part)
      text.remove_suffix(part.size());
  };
  drop_back(": Bad file descriptor");
  if (text.find("dlerror system message: ") != std::string_view::npos) drop_back(")");
  drop_front("dlerror system message: ");
  drop_front(file.string() + ": ");
  return std::string(text);
}

/// Refuses, and undoes, a change of the floating-point control word since construction.
class FpControlCheck {
 public:
  std::string problem(std::string_view when) const {
    const std::uint64_t now = fp_control();
    if (now == before_) return "";
    set_fp_control(before_);
    return fmt::format(
        "{} changed the floating-point control word ({} {:#06x} to {:#06x}), which would change the "
        "results of everything else; it was put back. Build it without -ffast-math and without "
        "setting rounding or flush-to-zero.",
        when, kFpControlName, before_, now);
  }

 private:
  const std::uint64_t before_ = fp_control();
};

std::vector<Offer> offers_of(const tenon_plugin_v1_t& plugin) {
  std::vector<Offer> offers;
  for (auto component = plugin.components; *component != nullptr; ++component) {
    Offer& offer = offers.emplace_back(Offer{(*component)->kind, (*component)->id, {}});
    for (auto alias = (*component)->aliases; alias != nullptr && *alias != nullptr; ++alias) {
      offer.aliases.emplace_back(*alias);
    }
  }
  return offers;
}

std::string mismatch_with_tag(const tenon_plugin_v1_t& plugin, const AbiTag& tag) {
  if (plugin.id != tag.plugin_id)
    return fmt::format("id is '{}', section says '{}'", plugin.id, tag.plugin_id);
  if (plugin.version != tag.plugin_version) {
    return fmt::format("version is '{}', section says '{}'", plugin.version, tag.plugin_version);
  }
  if (offers_of(plugin) != tag.offers) return "its components are not those that the section lists";
  return "";
}

}  // namespace

OpenPlugin open_plugin(const fs::path& file, const AbiTag& host) {
  std::error_code failure;
  const fs::path path = fs::canonical(file, failure);
  if (failure) fail_plugin(cannot_load(file, fmt::format("{}.", failure.message())));

  OpenPlugin plugin{nullptr, read_abi_tag(path), path};
  if (std::string problem = abi_problem(plugin.tag, host, path); !problem.empty()) fail_plugin(problem);

  const GuardContext context{plugin.tag.plugin_id, ""};
  const PluginCallScope scope(context);  // a crash in a static initialiser is reported with the plugin's name
  const FpControlCheck fp_check;
  boost::dll::shared_library library;
  try {
    library.load(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::exception& error) {
    const std::string text = loader_text(error, path);
    const std::string_view hint = text.find("undefined symbol") != std::string::npos
                                      ? " Link it with -Wl,-z,defs to find this when building it."
                                      : "";
    fail_plugin(cannot_load(path, fmt::format("{}.{}", text, hint)));
  }
  // Pin it: this second handle is never closed, and the library is never unmapped.
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE) == nullptr) {
    fail_plugin(cannot_load(path, "it was opened but cannot be pinned in memory."));
  }
  if (std::string problem = fp_check.problem("loading it"); !problem.empty())
    fail_plugin(cannot_load(path, problem));
  if (!library.has(TENON_PLUGIN_SYMBOL)) {
    fail_plugin(cannot_load(path, "it does not export the symbol " TENON_PLUGIN_SYMBOL
                                  ". Define it with TENON_PLUGIN, once, in one source file."));
  }
  plugin.descriptor = &library.get<const tenon_plugin_v1_t>(TENON_PLUGIN_SYMBOL);
  std::string problem = descriptor_problem(*plugin.descriptor);
  if (problem.empty()) problem = mismatch_with_tag(*plugin.descriptor, plugin.tag);
  if (!problem.empty()) {
    fail_plugin(cannot_load(
        path,
        fmt::format("its descriptor is wrong: {}. Static initialisers were run, nothing else.", problem)));
  }
  return plugin;
}

void init_plugin(const tenon_plugin_v1_t& descriptor, const fs::path& file) {
  if (descriptor.init == nullptr) return;
  const tenon_host_v1 host{sizeof(tenon_host_v1), TENON_ABI_EPOCH, TENON_SDK_VERSION, nullptr};
  tenon_error err{sizeof(tenon_error), static_cast<std::int32_t>(ErrorKind::kPlugin), ""};
  const FpControlCheck fp_check;
  const GuardContext context{descriptor.id, ""};
  std::string problem;
  try {
    const HangWatch watch(context, "init", kInitSeconds);
    const int status = guard(context, [&] { return descriptor.init(&host, &err); });
    err.message[sizeof err.message - 1] = '\0';
    if (status != 0)
      problem = fmt::format("{}: {}", guard_place(context),
                            err.message[0] != '\0' ? err.message : "gave no reason");
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (!problem.empty()) fail_plugin(cannot_load(file, fmt::format("its init failed: {}", problem)));
  if (problem = fp_check.problem("its init"); !problem.empty()) {
    if (descriptor.shutdown != nullptr) shutdown_plugin(descriptor);
    fail_plugin(cannot_load(file, problem));
  }
}

void shutdown_plugin(const tenon_plugin_v1_t& descriptor) {
  if (descriptor.shutdown == nullptr) return;
  guard(GuardContext{descriptor.id, ""}, [&] { descriptor.shutdown(); });
}

}  // namespace tenon::plugin
