// A run that is continued with another batch size, number of replicas or of micro-batches reads on after the
// last sample that was read: none twice, none left out. If that is impossible, it is refused with the number
// of samples.
#include "support.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>
#include <tenon/sync.hpp>

#include <gmock/gmock.h>

#include <mutex>

namespace rehearsal::resumed_shape_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

struct Log {
  std::mutex mutex;
  std::vector<std::int64_t> samples;  ///< in no order: replicas read at the same time

  std::vector<std::int64_t> take() {
    const std::lock_guard lock(mutex);
    std::sort(samples.begin(), samples.end());
    return std::exchange(samples, {});
  }
} asked;

/// `points` that records the requested samples of the training split.
class Listed final : public Dataset {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("width", "16"), option::integer("batch", "4"),
                                            option::boolean("complex", "false")};
  static constexpr ComponentInfo kInfo{.id = "listed", .summary = "points, listed", .options = kOptions};
  explicit Listed(const Options& options) : points_(options) {}
  void open(std::uint64_t seed) override { points_.open(seed); }
  std::int64_t batch() const override { return points_.batch(); }
  const DataInfo& info() const override { return points_.info(); }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    points_.read(request, fields);
    if (request.split != Split::kTrain) return;
    const std::lock_guard lock(asked.mutex);
    for (std::int64_t i = 0; i < request.count; ++i) asked.samples.push_back(request.first + i);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  Points points_;
};

/// Replica 1 skips every second slot, and its samples wait for it.
class SitsOut final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "sits_out", .summary = "one replica computes less"};
  explicit SitsOut(const Options&) {}
  SlotPlan plan(const Slot& slot) const override {
    if (slot.replica == 1 && slot.t % 2 == 1) return {SlotKind::kSkip, 1, false};
    return {};
  }
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.shape", .version = "1.0.0", .summary = "listed data"},
                    Listed, SitsOut)

constexpr const char* kRest =
    "[transport]\ntype = 'thread'\n[sync]\ntype = 'ddp'\n"
    "[recovery]\ntype = 'full'\nasync = false\nevery = 50\nkeep = 50\n";

using Sets = std::vector<std::string>;
Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}
const Sets kListed{"data.type=listed", "run.log_every=3"};

std::vector<std::int64_t> run_of(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> samples(count);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = first + static_cast<std::int64_t>(i);
  return samples;
}

struct Change {
  const char* name;
  Sets first, then;
  std::int64_t read, next;  ///< samples of three slots, then of two
};

class ResumedShape : public ::testing::TestWithParam<Change> {};

TEST_P(ResumedShape, ReadsOnAfterTheLastSample) {
  const Change& change = GetParam();
  const Folder folder;
  train(plugin, kRest, with(with(kListed, {"run.steps=3"}), change.first), folder);
  EXPECT_EQ(asked.take(), run_of(0, change.read));
  const RunResult resumed =
      train(plugin, kRest, with(with(kListed, {"run.steps=5"}), change.then), folder, "run", true);
  EXPECT_EQ(asked.take(), run_of(change.read, change.next));
  EXPECT_EQ(resumed.samples, change.read + change.next);
  // Continues once more, from a count of samples that is no multiple of the batch.
  train(plugin, kRest, with(kListed, {"run.steps=6", "data.batch=3"}), folder, "run", true);
  EXPECT_EQ(asked.take(), run_of(change.read + change.next, 3));
  probe_log.take();
}

INSTANTIATE_TEST_SUITE_P(
    Changes, ResumedShape,
    ::testing::Values(
        Change{"same", {}, {}, 12, 8}, Change{"larger_batch", {}, {"data.batch=8"}, 12, 16},
        Change{"smaller_batch", {}, {"data.batch=2"}, 12, 4},
        Change{"odd_batch", {}, {"data.batch=5"}, 12, 10},
        Change{"more_micro_batches", {}, {"run.accumulate=2"}, 12, 16},
        Change{"fewer_micro_batches", {"run.accumulate=3"}, {"run.accumulate=2"}, 36, 16},
        Change{"more_ranks", {}, {"parallel.ranks=2"}, 12, 16},
        Change{"fewer_ranks", {"parallel.ranks=3"}, {"parallel.ranks=2"}, 36, 16},
        Change{"ranks_and_batch", {"parallel.ranks=2"}, {"parallel.ranks=3", "data.batch=5"}, 24, 30},
        Change{
            "all_of_it", {"parallel.ranks=2", "data.batch=3"}, {"run.accumulate=3", "data.batch=2"}, 18, 12}),
    [](const ::testing::TestParamInfo<Change>& info) { return info.param.name; });

std::string refusal(const Sets& sets, const Folder& folder) {
  try {
    try_train(plugin, kRest, with(kListed, sets), folder, "run", true);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(ResumedShapes, ReplicasAtDifferentPlacesAreNotDealtAnew) {
  const Folder folder;
  const Sets apart{"sync.type=sits_out", "parallel.ranks=2"};
  const auto at = [&](const char* steps) { return with(with(kListed, apart), {steps}); };
  train(plugin, kRest, at("run.steps=8"), folder, "whole");
  const std::vector<std::int64_t> whole = asked.take();
  train(plugin, kRest, at("run.steps=4"), folder);
  std::vector<std::int64_t> parts = asked.take();
  // Replica 0 has consumed 4 micro-batches of 4, replica 1 two: its next samples are 20, ..., those of
  // replica 0 are 32, ...
  for (const char* changed : {"data.batch=8", "parallel.ranks=1"}) {
    EXPECT_THAT(refusal(with({"run.steps=8"}, with(apart, {changed})), folder),
                HasSubstr("saved by 2 replica(s) with batch = 4, which are at different places of the data: "
                          "samples 16 to 32 "
                          "of the order."))
        << changed;
  }
  EXPECT_THAT(
      refusal(with({"run.steps=8"}, with(apart, {"data.batch=8"})), folder),
      HasSubstr("2 replica(s) with batch = 8 would repeat 8 samples from the first of them, or skip 8 from "
                "the last. Nothing was changed: "));
  train(plugin, kRest, at("run.steps=8"), folder, "run", true);
  const std::vector<std::int64_t> rest = asked.take();
  parts.insert(parts.end(), rest.begin(), rest.end());
  std::sort(parts.begin(), parts.end());
  EXPECT_EQ(parts, whole);
  probe_log.take();
}

/// Rewrites the only generation as a version that counted micro-batches would have saved it.
void count_batches(const std::string& folder, std::int64_t step, std::int64_t stride) {
  const auto files = make_posix_files();
  const std::string checkpoints = folder + "/run/1/checkpoints";
  CheckpointReader reader = CheckpointStore(*files, checkpoints, {}).open(step);
  std::vector<std::vector<std::byte>> memory;
  std::vector<SaveItem> items;
  for (const TensorSpec& spec : reader.tensors()) {
    TensorView view{nullptr, spec.shape, spec.dtype};
    memory.emplace_back(static_cast<std::size_t>(view.bytes()));
    view.data = memory.back().data();
    reader.read(spec.name, view);
    items.push_back({.name = spec.name,
                     .data = view,
                     .global_shape = spec.shape,
                     .offset = Shape(std::vector<std::int64_t>(spec.shape.rank(), 0))});
  }
  std::vector<MetaBlock> meta;
  for (const MetaBlock& block : reader.meta()) {
    if (block.name == "rank0/core/position") {
      meta.push_back({"rank0/core/cursor", std::to_string(std::stoll(block.value) / stride)});
    } else if (!block.name.starts_with("run/") && !block.name.starts_with("rank0/lines/")) {
      meta.push_back(block);
    }
  }
  std::filesystem::remove_all(checkpoints);
  SoloExchange exchange;
  const SaveResult saved = CheckpointStore(*files, checkpoints, {})
                               .save({.step = step, .items = items, .meta = meta}, 0, 1, exchange);
  ASSERT_EQ(saved.status, SaveStatus::kCommitted) << saved.error;
}

TEST(ResumedShapes, CheckpointsThatCountMicroBatchesGoOnInTheirOwnShape) {
  const Folder folder;
  train(plugin, kRest, with(kListed, {"run.steps=3"}), folder);
  EXPECT_EQ(asked.take(), run_of(0, 12));
  count_batches(folder.path, 3, 4);
  for (const char* changed : {"data.batch=8", "parallel.ranks=2"}) {
    EXPECT_THAT(refusal({"run.steps=5", changed}, folder),
                HasSubstr("counts 3 micro-batches per replica and does not say of which size"));
  }
  EXPECT_THAT(
      refusal({"run.steps=5", "data.batch=8"}, folder),
      HasSubstr("With batch = 8 and 1 replica(s) they would be 24 samples, but 12 were read, so 12 samples "
                "would be skipped. Nothing was changed: "));
  train(plugin, kRest, with(kListed, {"run.steps=5"}), folder, "run", true);
  EXPECT_EQ(asked.take(), run_of(12, 8));
  probe_log.take();
}

}  // namespace
}  // namespace rehearsal::resumed_shape_test
