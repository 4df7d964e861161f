// Compositions: whole runs drawn from what the registry describes. Each is a function of the seed and its
// number; components take turns in shuffled rounds, so that every one comes up as often as any other of its
// kind, and so do pairs of components of two kinds, of which each composition keeps one to its last draws.
// Knows kinds and tables of the core; no component by name but the transport of threads.
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
#include <utility>
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
  /// without a server, with one replica, with other components beside its pair; then with other bases, at
  /// last without the pair.
  static constexpr int kAttempts = 30;
  /// [run] deadline in seconds. A busy disk can take 30 s to sync a file, in which other ranks wait for the
  /// one that saves.
  static constexpr double kDeadline = 60;

  /// Throws Error(kConfig) for a kind that no table of a run names.
  Space(Registry& registry, SpaceRequest request);

  /// A function of the seed and the arguments, where `makes` is one of its own.
  Composition draw(std::uint64_t index, int attempt = 0) const;
  /// Names "KIND.ID" of the components that take turns.
  std::vector<std::string> components() const;

 private:
  /// A component by its kind, "sync/1", and its type.
  using Named = std::pair<std::string, std::string>;
  using Pairs = std::vector<std::pair<Named, Named>>;

  bool varies(std::string_view kind) const;
  std::string turn(std::string_view kind, std::uint64_t index) const;
  Pairs pairs_of(bool has_rows) const;
  /// The components that a composition keeps while others beside them are drawn again.
  std::vector<Named> kept_by(std::uint64_t index, int attempt) const;
  /// The type that an attempt takes; "": none.
  std::string choice(std::string_view kind, std::uint64_t index, int attempt,
                     const std::vector<Named>& kept) const;
  Value component(std::string_view kind, const std::string& type, OptionRequest& options,
                  const Value& kept = Value()) const;
  std::vector<std::size_t> order_of_bases(std::uint64_t round) const;
  const Base& base_of(std::uint64_t index, int attempt) const;
  void draw_components(Value& root, const Base& base, std::uint64_t index, int attempt,
                       const std::vector<Named>& kept) const;
  void draw_tables(Value& root, const Base& base, std::uint64_t index, int attempt,
                   const std::vector<Named>& kept) const;
  void draw_core(Value& root, const Base& base, std::uint64_t index, int attempt) const;

  Registry& registry_;
  SpaceRequest request_;
  std::vector<Base> bases_;
  /// They take turns among the compositions whose bases have row tables, and among the others.
  Pairs pairs_with_rows_, pairs_without_rows_;
};

/// Names "KIND.ID" of all components of a run, inner ones included. Types that no plugin offers are left out.
std::set<std::string> components_of(const Value& root, const ComponentCatalog& catalog);

}  // namespace tenon::fuzz
