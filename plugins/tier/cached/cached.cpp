// Tier `cached`: rows of one tier, with the rows used last or most in another, faster one.
#include "cached_rows.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/tier.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace tenon::tier_cached {
namespace {

/// Which rows have a line depends on hints, and those come in their own time: with a tier that keeps other
/// values than it is given, the values of a run would depend on it, too. Tries a row, which keeps its value.
void require_exact(RowMemory& memory, const RowMemorySpec& spec, const char* option,
                   const std::string& table) {
  auto* const kept = static_cast<KeptRows*>(memory.query(KeptRows::kId));
  // What an earlier process left was tried by it.
  if (spec.rows() == 0 || (kept != nullptr && kept->kept())) return;
  const std::size_t bytes = spec.row_bytes();
  std::vector<std::byte> before(bytes), given(bytes), found(bytes);
  const auto third = [&]<class Real>(Real /*tag*/) {
    const std::vector<Real> row(static_cast<std::size_t>(spec.width), Real{1} / Real{3});
    std::memcpy(given.data(), row.data(), bytes);
  };
  if (spec.dtype == DType::kF32) third(float{});
  if (spec.dtype == DType::kF64) third(double{});
  const std::int64_t ids[] = {spec.first};
  memory.scan(ids, before.data());
  memory.fill(ids, given.data());
  memory.scan(ids, found.data());
  memory.fill(ids, before.data());
  if (given == found) return;
  fail_config(
      fmt::format("row table '{}': tier 'cached' cannot have a tier that rounds rows as its '{}': which rows "
                  "are rounded would depend on time. Round outside of the cache, as in {{type = \"half\", "
                  "over = {{type = \"cached\"}}}}, or give the rows a place without a cache",
                  table, option));
}

}  // namespace

class Cached final : public Tier {
 public:
  static constexpr auto kPolicies =
      option::choice<Policy>({{"lru", Policy::kLru}, {"lfu", Policy::kLfu}, {"clock", Policy::kClock}});
  static constexpr auto kWrites = option::choice<bool>({{"back", false}, {"through", true}});
  static constexpr OptionSpec kOptions[] = {
      option::component("front", Tier::kKind).doc_text("tier of the cache; absent: host memory"),
      option::component("behind", Tier::kKind).doc_text("tier of all rows; absent: host memory"),
      option::real("load_factor", "0.2")
          .doc_text("lines of the cache as a share of the rows, above 0 and at most 1"),
      option::integer("ways", "16")
          .between(1, 1024)
          .doc_text("lines of a set, or a few more where the lines are no multiple: a row may lie in any "
                    "line of its "
                    "set"),
      option::text("policy", "\"lru\"")
          .one_of(kPolicies)
          .doc_text("row that gives up its line: lru: used longest ago; lfu: used least, where counts age; "
                    "clock: not used since the hand came by"),
      option::integer("aging", "256")
          .between(0, 1 << 20)
          .doc_text("lfu: counts of a set are halved after every so many accesses per line; 0: never"),
      option::text("write", "\"back\"")
          .one_of(kWrites)
          .doc_text("back: a written row reaches `behind` when it gives up its line; through: at once"),
  };
  static constexpr ComponentInfo kInfo{.id = "cached",
                                       .summary = "rows of one tier, cached in another",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};

  explicit Cached(const Options& options)
      : front_(options.component<Tier>("front")),
        behind_(options.component<Tier>("behind")),
        load_factor_(options.real("load_factor")),
        ways_(options.integer("ways")),
        policy_(options.choice("policy", kPolicies)),
        aging_(static_cast<std::uint32_t>(options.integer("aging"))),
        write_through_(options.choice("write", kWrites)) {
    if (load_factor_ > 1) {
      fail_config(
          fmt::format("load_factor = {}: a cache larger than what it fronts; expected above 0 and at most 1",
                      load_factor_));
    }
    if (!(load_factor_ > 0)) {
      fail_config(
          fmt::format("load_factor = {}: a cache without lines; expected above 0 and at most 1. For tables "
                      "without a cache, "
                      "write the tier `behind` itself",
                      load_factor_));
    }
  }

  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    const Geometry geometry = make_geometry(spec.rows(), load_factor_, ways_);
    if (static_cast<std::uint64_t>(spec.rows()) / geometry.sets >= CacheSets::kNone) {
      fail_config(
          fmt::format("row table '{}': {} rows share {} sets of lines: expected below {} rows a set. Raise "
                      "load_factor ({})",
                      spec.name(), spec.rows(), geometry.sets, CacheSets::kNone, load_factor_));
    }
    const std::string front_name = name_of_front(spec);
    std::unique_ptr<RowMemory> behind = memory_in(behind_, spec_behind(spec));
    if (behind_ != nullptr) require_exact(*behind, spec, "behind", spec.name());
    const RowMemorySpec lines = spec_front(spec, geometry, front_name);
    std::unique_ptr<RowMemory> front = memory_in(front_, lines);
    if (front_ != nullptr) require_exact(*front, lines, "front", spec.name());
    const CachedRows::Setup setup{.first = spec.first,
                                  .row_bytes = spec.row_bytes(),
                                  .geometry = geometry,
                                  .policy = policy_,
                                  .aging = policy_ == Policy::kLfu ? aging_ : 0,
                                  .write_through = write_through_};
    return std::make_unique<CachedRows>(setup, std::move(front), std::move(behind));
  }

  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    const Geometry geometry = make_geometry(spec.rows(), load_factor_, ways_);
    const std::string front_name = name_of_front(spec);
    return CacheSets::bytes(geometry, policy_) + bytes_in(front_, spec_front(spec, geometry, front_name)) +
           bytes_in(behind_, spec_behind(spec));
  }

  void* query(std::string_view) override { return nullptr; }

 private:
  static std::unique_ptr<RowMemory> memory_in(Tier* tier, const RowMemorySpec& spec) {
    return tier == nullptr ? make_host_rows(spec, {}) : tier->allocate(spec);
  }
  static std::int64_t bytes_in(const Tier* tier, const RowMemorySpec& spec) {
    return tier == nullptr ? static_cast<std::int64_t>(spec.row_bytes()) * spec.rows()
                           : tier->host_bytes(spec);
  }
  static std::string name_of_front(const RowMemorySpec& spec) { return fmt::format("{}.front", spec.table); }
  /// Lines mean nothing to another process.
  static RowMemorySpec spec_front(const RowMemorySpec& spec, const Geometry& geometry,
                                  const std::string& name) {
    RowMemorySpec front = spec;
    front.table = name;
    front.first = 0;
    front.last = geometry.lines;
    front.run = {};
    return front;
  }
  /// Without the newest rows, which lie in the cache alone, what outlives the process would be old.
  RowMemorySpec spec_behind(const RowMemorySpec& spec) const {
    RowMemorySpec behind = spec;
    if (!write_through_) behind.run = {};
    return behind;
  }

  Tier* front_;
  Tier* behind_;
  double load_factor_;
  std::int64_t ways_;
  Policy policy_;
  std::uint32_t aging_;
  bool write_through_;
};

}  // namespace tenon::tier_cached

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tier_cached",
                               .version = "0.1.0",
                               .summary = "rows of one tier, cached in another"},
             tenon::tier_cached::Cached)
