// Rehearses an observer of rows: on each rank it receives every row that the batches of applied slots read,
// as often as they read it, and no other.
#include "lookup.hpp"

#include <tenon/files.hpp>
#include <tenon/observer.hpp>

#include <map>

namespace rehearsal::table_accesses_test {
namespace {

using namespace tenon;

struct Heard {
  std::vector<std::string> tables;
  std::map<std::int64_t, std::int64_t> accesses;  ///< by row
  std::int64_t first = -1, last = -1;
};

Heard heard;

class Listener final : public Observer, public RowObserver {
 public:
  static constexpr ComponentInfo kInfo{.id = "listener", .summary = "counts rows"};
  explicit Listener(const Options&) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override { heard = {}; }
  void on_slot(const SlotRecord&) override {}
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view id) override {
    return id == RowObserver::kId ? static_cast<RowObserver*>(this) : nullptr;
  }
  void on_tables(std::span<const ParameterInfo> tables) override {
    for (const ParameterInfo& info : tables) heard.tables.push_back(info.spec.name);
    heard.first = tables[0].offset[0];
    heard.last = heard.first + tables[0].local[0];
  }
  void on_accesses(int, std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts) override {
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    for (std::size_t i = 0; i < ids.size(); ++i) heard.accesses[ids[i]] += counts[i];
  }
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.rows", .version = "1.0.0", .summary = "rows"}, Lookup,
                    Listener)

/// Accesses of `samples` training samples from the first.
std::map<std::int64_t, std::int64_t> accesses_of(std::int64_t samples) {
  std::map<std::int64_t, std::int64_t> counts;
  for (std::int64_t sample = 0; sample < samples; ++sample) ++counts[row_of(point(sample % 64, 0))];
  return counts;
}

const std::vector<std::string> kSets = {"model.layer=[{name='loss', type='lookup', inputs=['x']}]",
                                        "optimizer={type='rowwise_adagrad'}", "observe=[{type='listener'}]",
                                        "run.steps=48"};

TEST(TableAccesses, AreThoseOfTheBatches) {
  const Folder folder;
  train(plugin, "", kSets, folder);
  EXPECT_EQ(heard.tables, std::vector<std::string>{"rows"});
  EXPECT_EQ(heard.first, 0);
  EXPECT_EQ(heard.last, kRows);
  EXPECT_EQ(heard.accesses, accesses_of(2 * 48)) << "every sample once or twice";
}

TEST(TableAccesses, OfAllMicroBatchesOfASlot) {
  const Folder folder;
  std::vector<std::string> sets = kSets;
  sets.emplace_back("run.accumulate=3");
  train(plugin, "", sets, folder);
  EXPECT_EQ(heard.accesses, accesses_of(3 * 2 * 48));
}

TEST(TableAccesses, OfTheWholeRunAreInTheFileOfTheObserverTables) {
  const Folder folder;
  std::vector<std::string> sets = kSets;
  sets[2] = "observe=[{type='tables', hottest=1}]";
  train(plugin, "", sets, folder);
  const auto files = make_posix_files();
  const std::string text = read_text(*files, folder.path + "/run/1/tables.rank0.json", 1 << 20);
  const auto expected = accesses_of(2 * 48);
  EXPECT_NE(text.find("\"accesses\": 96, \"touched_rows\": " + std::to_string(expected.size()) + ","),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace rehearsal::table_accesses_test
