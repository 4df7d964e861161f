// Loads well; each of its schedules fails in another way once a run creates or calls it.
#include "bad.hpp"

#include <tenon/optimizer.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace {

using Table = tenon_component_v1;

class Half final : public tenon::Schedule {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "half", .summary = "a schedule that misbehaves"};
  explicit Half(const tenon::Options&) {}
  double rate(const tenon::SchedulePoint& point) const override {
    if (point.slot == 2) throw 2;
    return point.base_lr / 2;
  }
};

constexpr Table table(const char* id, decltype(Table::create) create) {
  Table result = tenon::detail::ComponentGlue<Half>::kTable;
  result.id = id;
  if (create != nullptr) result.create = create;
  return result;
}

// The plugin ABI forbids what these do; the core must not trust it.
constexpr Table kTables[] = {
    table("throws_later", nullptr),
    table("null_silent", [](const void*, const tenon_host_v1*, tenon_error*) -> void* { return nullptr; }),
    table("null_with_reason",
          [](const void*, const tenon_host_v1*, tenon_error* err) -> void* {
            std::snprintf(err->message, sizeof err->message, "no phase of the moon suits");
            return nullptr;
          }),
    table("null_with_endless_reason",
          [](const void*, const tenon_host_v1*, tenon_error* err) -> void* {
            for (char& c : err->message) c = 'x';
            return nullptr;
          }),
    table("throws_a_number", [](const void*, const tenon_host_v1*, tenon_error*) -> void* { throw 5; }),
    table("exits", [](const void*, const tenon_host_v1*, tenon_error*) -> void* { std::exit(0); }),
    table("sleeps",
          [](const void*, const tenon_host_v1*, tenon_error*) -> void* {
            while (true) ::pause();
          }),
    table("crashes",
          [](const void*, const tenon_host_v1*, tenon_error*) -> void* {
            std::raise(SIGSEGV);
            return nullptr;
          }),
};
constexpr const Table* kList[] = {&kTables[0], &kTables[1], &kTables[2], &kTables[3], &kTables[4],
                                  &kTables[5], &kTables[6], &kTables[7], nullptr};

}  // namespace

#define OFFER(id) "component schedule/1 " id "\n"
BAD_SECTION(BAD_PLATFORM(BAD_EPOCH, TENON_ABI_STRING) "plugin bad.misbehaves 1.0.0\n" OFFER("throws_later")
                OFFER("null_silent") OFFER("null_with_reason") OFFER("null_with_endless_reason")
                    OFFER("throws_a_number") OFFER("exits") OFFER("sleeps") OFFER("crashes") "end\n")
BAD_SYMBOL([] {
  tenon_plugin_v1_t plugin = sound_descriptor(bad_text, "bad.misbehaves");
  plugin.components = kList;
  return plugin;
}())
