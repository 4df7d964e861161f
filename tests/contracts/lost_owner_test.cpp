// Rehearses partial recovery (CPR): the owner of some rows of a table dies, a replacement receives exactly
// those rows from the newest generation, an increment over a complete one, and the other ranks continue with
// their own state. The policy accounts for the portion of lost samples.
#include "partial_policy.hpp"
#include "support.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/executor.hpp>
#include <tenon/testing/components.hpp>

namespace rehearsal::lost_owner_test {
namespace {

using namespace tenon;

constexpr std::int64_t kRows = 12, kShardOffset = 5, kWidth = 4, kBatch = 8;

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.partial", .version = "1.0.0", .summary = "partial"},
                    Partial)

/// A rank: its rows of the table, its policy.
struct Owner {
  Owner(tenon::testing::Bench& bench, int rank) : policy(bench.make_component<Recovery>("partial", "")) {
    ParameterInfo info;
    info.spec = {.name = "table",
                 .shape = {kRows, kWidth},
                 .sharding = {{0, {0}, {0, kShardOffset, kRows}}},
                 .role = Role::kRowTable};
    const int grid[] = {2}, coordinates[] = {rank};
    const Box part = local_part(info.spec, {grid, coordinates});
    info.local = part.extents;
    info.offset = part.offset;
    set = make_parameter_set("live", {info}, *bench.device, SetContents::kEverything);
    for (std::int64_t row = info.offset[0]; row < info.offset[0] + info.local[0]; ++row) rows.push_back(row);
  }
  RowTable& table() { return *set->table(0); }
  std::vector<float> read(const std::vector<std::int64_t>& ids) {
    std::vector<float> values(ids.size() * kWidth);
    table().read(ids, {values.data(), {static_cast<std::int64_t>(ids.size()), kWidth}});
    return values;
  }
  void write(const std::vector<std::int64_t>& ids, std::vector<float> values) {
    table().write(ids, {values.data(), {static_cast<std::int64_t>(ids.size()), kWidth}});
  }
  std::vector<std::uint64_t> versions() {
    std::vector<std::uint64_t> result(rows.size());
    table().versions(rows, result);
    return result;
  }
  std::unique_ptr<ParameterSet> set;
  tenon::testing::Made<Recovery> policy;
  std::vector<std::int64_t> rows;
};

TEST(LostOwner, GetsItsRowsBackAndNobodyElseNotices) {
  const Folder folder;
  tenon::testing::Bench bench("cpu", "auto", 1);
  bench.registry.add_builtin(plugin);
  const auto files = make_posix_files();
  CheckpointStore store(*files, folder.path, {});
  Owner owners[2] = {{bench, 0}, {bench, 1}};
  std::vector<float> at_save;
  for (std::int64_t slot = 1; slot <= 9; ++slot) {
    std::vector<std::string> reports;
    for (int r = 0; r < 2; ++r) {
      Owner& owner = owners[r];
      const std::vector<std::int64_t> ids = {owner.rows[static_cast<std::size_t>(slot) % owner.rows.size()]};
      std::vector<float> values = owner.read(ids);
      for (float& value : values) value += static_cast<float>(slot + r);
      owner.write(ids, values);
      owner.policy->on_accesses(0, ids, std::vector<std::uint32_t>{1});
      const SavePlan plan = owner.policy->plan_save({.slot = slot, .steps = 16});
      if (!plan.save) continue;
      std::vector<float> saved = owner.read(plan.everything ? owner.rows : plan.tables[0].ids);
      SaveItem item{.name = "table",
                    .data = {saved.data(), {static_cast<std::int64_t>(saved.size()) / kWidth, kWidth}},
                    .global_shape = {kRows, kWidth},
                    .offset = {plan.everything ? owner.rows[0] : 0, 0}};
      if (!plan.everything) item.rows = plan.tables[0].ids;
      reports.push_back(store.write_part({.step = slot, .base = plan.base_slot, .items = {&item, 1}}, r, 2));
      if (r == 1) at_save = owner.read(owner.rows);
    }
    if (reports.empty()) continue;
    ASSERT_EQ(store.commit(slot, reports).status, SaveStatus::kCommitted);
  }

  const std::vector<float> survivor = owners[0].read(owners[0].rows);
  const std::vector<std::uint64_t> survivor_versions = owners[0].versions();
  EXPECT_EQ(
      owners[0].policy->on_failure({.slot = 9, .samples = 9 * kBatch, .dead = {1}, .shards = {1}}).action,
      FailureAction::kContinuePartial);

  const std::int64_t step = store.recover(true).step;
  ASSERT_EQ(step, 8);
  CheckpointReader reader = store.open(step);
  Owner replacement(bench, 1);
  std::vector<float> lost(replacement.rows.size() * kWidth);
  reader.read_rows("table", replacement.rows, {lost.data(), {kRows - kShardOffset, kWidth}});
  replacement.write(replacement.rows, lost);
  owners[0].policy->on_restored(
      {.shard = 1, .checkpoint_slot = step, .checkpoint_samples = step * kBatch, .samples_now = 9 * kBatch});

  EXPECT_EQ(replacement.read(replacement.rows), at_save);
  EXPECT_NE(owners[1].read(replacement.rows), at_save) << "slot 9 is what was lost";
  EXPECT_EQ(replacement.versions(), std::vector<std::uint64_t>(replacement.rows.size(), 1))
      << "copies of old rows are stale";
  EXPECT_EQ(owners[0].read(owners[0].rows), survivor);
  EXPECT_EQ(owners[0].versions(), survivor_versions);
  EXPECT_DOUBLE_EQ(*static_cast<double*>(owners[0].policy->query("rehearsal.lost/1")),
                   1.0 * kBatch / (16 * kBatch * 2));
}

}  // namespace
}  // namespace rehearsal::lost_owner_test
