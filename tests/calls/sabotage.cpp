// The Itanium C++ ABI: an object begins with a pointer to the table of its class; before its first entry
// stand an offset and the type information. Functions of classes take `this` as their first argument.
#include "sabotage.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/row_service.hpp>
#include <tenon/sync_extra.hpp>
#include <tenon/transport.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

namespace tenon::calls {
namespace {

/// More than any class has; what follows a table in memory is copied with it.
constexpr int kMostFunctions = 96, kBefore = 2;

struct State {
  Sabotage what;
  const Functions* contracts = nullptr;
  volatile bool* called = nullptr;
  std::atomic<bool> armed{true};
  void* (*create)(const void*, const tenon_host_v1*, tenon_error*) = nullptr;
  std::mutex mutex;
  std::map<void*, void**> before;  ///< tables of objects as they were
};
State state;

[[noreturn]] void fail() {
  *state.called = true;
  switch (state.what.way) {
    case Way::kError:
      fail_plugin(kWords);
    case Way::kNumber:
      throw 7;
    case Way::kCrash:
      *static_cast<volatile int*>(nullptr) = 1;
      [[fallthrough]];
    case Way::kHang:
      for (;;) ::pause();
  }
  ::_exit(99);
}

__attribute__((no_sanitize("address", "undefined"))) void** own_table(void* object) {
  void**& table = *static_cast<void***>(object);
  const std::lock_guard lock(state.mutex);
  if (state.before.count(object) > 0 && state.before[object] != table) return table;
  state.before[object] = table;
  auto** copy = new void*[kBefore + kMostFunctions];
  for (int i = 0; i < kBefore + kMostFunctions; ++i) copy[i] = table[i - kBefore];
  table = copy + kBefore;
  return table;
}

template <typename Function>
Function* as_function(void* entry) {
  return reinterpret_cast<Function*>(entry);
}

int place_of(const std::string& interface, const std::string& name) {
  for (const Function& function : state.contracts->at(interface)) {
    if (function.name == name) return function.place;
  }
  fail_run("no such function: " + interface + "::" + name);
}

void* before(void* object, int place) {
  const std::lock_guard lock(state.mutex);
  return state.before.at(object)[place];
}

template <typename Replacement>
void replace(void* object, const std::string& interface, const std::string& name, Replacement* by) {
  own_table(object)[place_of(interface, name)] = reinterpret_cast<void*>(by);
}

void make_fail(void* object) {
  if (!state.armed) return;
  void** const table = own_table(object);
  const Function& function = state.what.function;
  table[function.place] = reinterpret_cast<void*>(&fail);
  if (function.name == "~") table[function.place + 1] = reinterpret_cast<void*>(&fail);
}

/// "Sync" of "sync/1".
std::string interface_of(const std::string& kind) {
  std::string name = kind.substr(0, kind.find('/'));
  name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return name;
}

void* query_of(void* self, std::string_view id) {
  const std::string interface = interface_of(state.what.kind);
  return as_function<void*(void*, std::string_view)>(before(self, place_of(interface, "query")))(self, id);
}

void* answer_query(void* self, std::string_view id) {
  if (id == state.what.id) return state.what.answer;
  return query_of(self, id);
}

std::unique_ptr<LinearSite> bind_failing(void* self, const SiteInfo& site, SiteHost& host) {
  auto bound = as_function<std::unique_ptr<LinearSite>(void*, const SiteInfo&, SiteHost&)>(
      before(self, place_of("Precision", "bind")))(self, site, host);
  if (bound != nullptr) make_fail(bound.get());
  return bound;
}

std::unique_ptr<Communicator> open_failing(void* self, int rank, const GroupSpec& group) {
  auto opened = as_function<std::unique_ptr<Communicator>(void*, int, const GroupSpec&)>(
      before(self, place_of("Transport", "open")))(self, rank, group);
  if (state.what.rank < 0 || rank == state.what.rank) make_fail(opened.get());
  return opened;
}

int offer_failing(void* self, std::string_view node, std::span<const std::string> tables,
                  const RowLookupHandler& handler) {
  make_fail(const_cast<RowLookupHandler*>(&handler));
  return as_function<int(void*, std::string_view, std::span<const std::string>, const RowLookupHandler&)>(
      before(self, place_of("RowService", "offer")))(self, node, tables, handler);
}

void infer_offering(void* self, InferContext& context) {
  if (void* const service = context.host().query(RowService::kId))
    replace(service, "RowService", "offer", &offer_failing);
  as_function<void(void*, InferContext&)>(before(self, place_of("Layer", "infer")))(self, context);
}

void take_failing(void* self, MeanReducer& reducer) {
  make_fail(&reducer);
  as_function<void(void*, MeanReducer&)>(before(self, place_of("MeanUser", "take_means_by")))(self, reducer);
}

void* create_failing(const void* options, const tenon_host_v1* host, tenon_error* error) {
  void* const made = state.create(options, host, error);
  if (made == nullptr || !state.armed) return made;
  const Sabotage& what = state.what;
  // A device that is asked for its availability, and a transport, are of no rank.
  const int rank = static_cast<Host*>(host->cxx_host)->rank();
  if (what.rank >= 0 && rank >= 0 && rank != what.rank) return made;
  const std::string interface = interface_of(what.kind);
  const auto offered = [&] {
    void* const found = as_function<void*(void*, std::string_view)>(
        (*static_cast<void***>(made))[place_of(interface, "query")])(made, what.id);
    if (found == nullptr) fail_run(what.type + " does not offer " + what.id);
    return found;
  };
  switch (what.origin) {
    case Origin::kComponent:
      make_fail(made);
      break;
    case Origin::kOffered:
      make_fail(offered());
      break;
    case Origin::kAnswered:
      make_fail(what.answer);
      replace(made, interface, "query", &answer_query);
      break;
    case Origin::kBound:
      replace(made, "Precision", "bind", &bind_failing);
      break;
    case Origin::kOpened:
      replace(made, "Transport", "open", &open_failing);
      break;
    case Origin::kLookups:
      replace(made, "Layer", "infer", &infer_offering);
      break;
    case Origin::kReducer:
      replace(offered(), "MeanUser", "take_means_by", &take_failing);
      break;
  }
  return made;
}

}  // namespace

void arrange(Registry& registry, const Functions& contracts, const Sabotage& sabotage,
             volatile bool* called) {
  state.what = sabotage;
  state.contracts = &contracts;
  state.called = called;
  const ComponentRef ref = registry.find(sabotage.kind, sabotage.type);
  auto* const component = const_cast<tenon_component_v1*>(ref.component);
  state.create = component->create;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(component) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(component + 1);
  if (::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) != 0)
    fail_run("the table of a component cannot be changed");
  component->create = &create_failing;
}

void arm(bool armed) {
  state.armed = armed;
}

}  // namespace tenon::calls
