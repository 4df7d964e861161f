// Rehearses counts of tiers: in a run an observer finds what the tiers of the weights and of the optimizer's
// rows counted, and the observer `tables` writes it.
#include "lookup.hpp"

#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/tier.hpp>

#include <set>

namespace rehearsal::table_counts_test {
namespace {

using namespace tenon;

/// A cache that never gives a row up: the first time that a row is read or written is a miss.
class Seen final : public RowMemory, TierCounts {
 public:
  explicit Seen(const RowMemorySpec& spec) : rows_(make_host_rows(spec, {})) {}
  void read(std::span<const std::int64_t> ids, std::byte* out) const override {
    rows_->read(ids, out);
    count_.reads += static_cast<std::int64_t>(ids.size());
    ask(ids);
  }
  void write(std::span<const std::int64_t> ids, const std::byte* values) override {
    rows_->write(ids, values);
    count_.writes += static_cast<std::int64_t>(ids.size());
    ask(ids);
  }
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override { rows_->scan(ids, out); }
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override { rows_->fill(ids, values); }
  void* query(std::string_view id) override {
    return id == TierCounts::kId ? static_cast<TierCounts*>(this) : nullptr;
  }
  void counts(const std::function<void(const TierCount&)>& visit) const override {
    visit(count_);
    visit({.tier = "seen/host", .bytes_out = 7});
  }

 private:
  void ask(std::span<const std::int64_t> ids) const {
    for (const std::int64_t id : ids) ++(seen_.insert(id).second ? count_.misses : count_.hits);
  }
  std::unique_ptr<RowMemory> rows_;
  mutable TierCount count_{.tier = "seen"};
  mutable std::set<std::int64_t> seen_;
};

class SeenTier final : public Tier {
 public:
  static constexpr ComponentInfo kInfo{.id = "seen", .summary = "remembers which rows were asked for"};
  explicit SeenTier(const Options&) {}
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    return std::make_unique<Seen>(spec);
  }
  std::int64_t host_bytes(const RowMemorySpec&) const override { return 0; }
  void* query(std::string_view) override { return nullptr; }
};

struct Level {
  int parameter;
  std::string state;
  TierCount count;
};

struct Heard {
  bool before_tables = false;
  std::vector<Level> at_first, newest;
  std::set<std::int64_t> rows;
  int parameter = -1;
};

Heard heard;

class Listener final : public Observer, public RowObserver {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_listener", .summary = "asks for counts"};
  Listener(const Options&, Host& host) : host_(host) {
    heard = {};
    heard.before_tables = host.query(TableCounts::kId) != nullptr;
  }
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord&) override { heard.newest = levels(); }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view id) override {
    return id == RowObserver::kId ? static_cast<RowObserver*>(this) : nullptr;
  }
  void on_tables(std::span<const ParameterInfo> tables) override {
    heard.parameter = tables[0].index;
    heard.at_first = levels();
  }
  void on_accesses(int, std::span<const std::int64_t> ids, std::span<const std::uint32_t>) override {
    heard.rows.insert(ids.begin(), ids.end());
  }

 private:
  std::vector<Level> levels() const {
    std::vector<Level> all;
    auto* const counts = static_cast<TableCounts*>(host_.query(TableCounts::kId));
    if (counts == nullptr) return all;
    counts->visit([&](int parameter, std::string_view state, const TierCount& level) {
      all.push_back({parameter, std::string(state), level});
    });
    return all;
  }
  Host& host_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.counts", .version = "1.0.0", .summary = "counts"},
                    Lookup, SeenTier, Listener)

const std::vector<std::string> kSets = {"model.layer=[{name='loss', type='lookup', inputs=['x']}]",
                                        "optimizer={type='rowwise_adagrad'}",
                                        "observe=[{type='counts_listener'}]",
                                        "tables={place=[{match='*', tier={type='seen'}}]}",
                                        "run.steps=30",
                                        "run.eval_every=0"};

TEST(TableCounts, AreThoseOfTheTiersOfWeightsAndState) {
  const Folder folder;
  train(plugin, "", kSets, folder);
  EXPECT_FALSE(heard.before_tables) << "observers are made before the tables";
  ASSERT_EQ(heard.at_first.size(), 4u);
  EXPECT_EQ(heard.at_first[0].count.reads + heard.at_first[0].count.writes, 0)
      << "initial values are filled in";
  ASSERT_EQ(heard.newest.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(heard.newest[i].parameter, heard.parameter);
    EXPECT_EQ(heard.newest[i].state.empty(), i < 2) << heard.newest[i].state;
    EXPECT_EQ(heard.newest[i].count.tier, i % 2 == 0 ? "seen" : "seen/host");
  }
  EXPECT_TRUE(heard.newest[2].state.starts_with("optimizer.")) << heard.newest[2].state;
  for (const std::size_t i : {0, 2}) {
    const TierCount& count = heard.newest[i].count;
    EXPECT_EQ(count.misses, static_cast<std::int64_t>(heard.rows.size()));
    EXPECT_EQ(count.hits + count.misses, count.reads + count.writes);
    EXPECT_GT(count.hits, 0);
  }
}

TEST(TableCounts, AreNotOfferedWithoutTiersThatCount) {
  const Folder folder;
  std::vector<std::string> sets = kSets;
  sets.erase(sets.begin() + 3);
  train(plugin, "", sets, folder);
  EXPECT_TRUE(heard.newest.empty());
}

TEST(TableCounts, AreInTheFileAndTheMetricsOfTheObserverTables) {
  const Folder folder;
  std::vector<std::string> sets = kSets;
  sets[2] = "observe=[{type='counts_listener'}, {type='tables', hottest=0, every=10, reuse=true}]";
  train(plugin, "", sets, folder);
  const auto files = make_posix_files();
  const std::string text = read_text(*files, folder.path + "/run/1/tables.rank0.json", 1 << 20);
  // The layer of the rehearsal also reads weights in the evaluation at the end; rows of the state rest there.
  const Level& state = heard.newest.at(2);
  const auto rows = static_cast<std::int64_t>(heard.rows.size());
  for (const std::string& part :
       {std::string("\"tiers\": [{\"state\": \"\", \"tier\": \"seen\", \"reads\": "),
        std::string("\"tier\": \"seen/host\""),
        "{\"state\": \"" + state.state + "\", \"tier\": \"seen\", \"reads\": " +
            std::to_string(state.count.reads) + ", \"writes\": " + std::to_string(state.count.writes) +
            ", \"hits\": " + std::to_string(state.count.hits) + ", \"misses\": " + std::to_string(rows) + ",",
        std::string("\"samples\": 60,"), "\"first\": " + std::to_string(rows) + ", \"lru_hits\": [[1, "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  const std::string metrics = read_text(*files, folder.path + "/run/1/metrics.jsonl", 1 << 20);
  for (const char* name : {"tables/misses_per_sample", "tables/hit_rate"}) {
    std::size_t lines = 0;
    for (std::size_t at = metrics.find(name); at != std::string::npos; at = metrics.find(name, at + 1))
      ++lines;
    EXPECT_EQ(lines, 3u) << name << " in " << metrics;
  }
}

}  // namespace
}  // namespace rehearsal::table_counts_test
