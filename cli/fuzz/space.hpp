// Compositions: whole runs drawn from what the registry describes. Each is a function of the seed and its
// number; components take turns in shuffled rounds, so that every one comes up as often as any other of its
// kind. Knows kinds and tables of the core; no component by name but the transport of threads.
#pragma once

#include "fuzz/bases.hpp"
#include "fuzz/option_values.hpp"

#include <tenon/registry.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::fuzz {

struct SpaceRequest {
  std::uint64_t seed = 1;
  std::vector<std::string> kinds;  ///< "sync", ...: the others keep what the base has; empty: all
  std::optional<Base> base;        ///< absent: the small bases
  std::string folder = {};         ///< that exists, for paths of components
  /// Whether a component can be made from a table, which is drawn again otherwise; absent: not asked.
  std::function<bool(std::string_view kind, const Value& table)> makes = {};
};

struct Composition {
  std::uint64_t index = 0;
  std::string base;
  Value root;
};

class Space {
 public:
  /// How often a composition is drawn that `check` refuses: each time nearer to the defaults, with and
  /// without a server; at last with other bases and without some of the components that take turns.
  static constexpr int kAttempts = 12;

  /// Throws Error(kConfig) for a kind that no table of a run names.
  Space(Registry& registry, SpaceRequest request);

  /// A function of the seed and the arguments, where `makes` is one of its own.
  Composition draw(std::uint64_t index, int attempt = 0) const;
  /// Names "KIND.ID" of the components that take turns.
  std::vector<std::string> components() const;

 private:
  bool varies(std::string_view kind) const;
  std::string turn(std::string_view kind, std::uint64_t index) const;
  Value component(std::string_view kind, const std::string& type, OptionRequest& options,
                  const Value& kept = Value()) const;
  const Base& base_of(std::uint64_t index, int attempt) const;
  void draw_components(Value& root, const Base& base, std::uint64_t index, int attempt) const;
  void draw_tables(Value& root, const Base& base, std::uint64_t index, int attempt) const;
  void draw_core(Value& root, const Base& base, std::uint64_t index, int attempt) const;

  Registry& registry_;
  SpaceRequest request_;
  std::vector<Base> bases_;
};

/// Names "KIND.ID" of all components of a run, inner ones included. Types that no plugin offers are left out.
std::set<std::string> components_of(const Value& root, const ComponentCatalog& catalog);

}  // namespace tenon::fuzz
