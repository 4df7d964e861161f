// The hashes of a run see every tensor and every number that a checkpoint keeps: one bit of each is flipped
// in a valid checkpoint, and the run that continues from it with nothing left to do must answer with another
// hash.
#include "run_program.hpp"
#include "test_paths.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

namespace tenon::integration::state_hash_test {
namespace {

/// A generation in memory.
struct Saved {
  std::vector<TensorSpec> tensors;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<MetaBlock> meta;

  explicit Saved(CheckpointReader reader) : tensors(reader.tensors().begin(), reader.tensors().end()) {
    meta.assign(reader.meta().begin(), reader.meta().end());
    for (const TensorSpec& spec : tensors) {
      TensorView view = view_of(spec, bytes.emplace_back());
      reader.read(spec.name, view);
    }
  }

  static TensorView view_of(const TensorSpec& spec, std::vector<std::byte>& memory) {
    TensorView view;
    view.dtype = spec.dtype;
    view.shape = spec.shape;
    memory.resize(view.bytes());
    view.data = memory.data();
    return view;
  }

  /// Writes it as the only generation of `folder`, with checksums that fit.
  void write(FileSystem& files, const fs::path& folder, std::int64_t step) {
    fs::remove_all(folder);
    std::vector<SaveItem> items;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      SaveItem item;
      item.name = tensors[i].name;
      item.data = view_of(tensors[i], bytes[i]);
      item.global_shape = tensors[i].shape;
      item.offset = Shape(std::vector<std::int64_t>(tensors[i].shape.rank(), 0));
      items.push_back(std::move(item));
    }
    SaveRequest request;
    request.step = step;
    request.items = items;
    request.meta = meta;
    SoloExchange exchange;
    const SaveResult result = CheckpointStore(files, folder.string(), {}).save(request, 0, 1, exchange);
    ASSERT_EQ(result.status, SaveStatus::kCommitted) << result.error;
  }
};

constexpr std::int64_t kSteps = 6;

class StateHash : public ::testing::Test {
 protected:
  StateHash() : config_(Config::parse(text(), "run.toml", Sets{})) {
    runtime_.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  }
  using Sets = std::vector<std::string>;

  /// The configuration of Scratch with dropout and clipping, so that more of the state is alive.
  std::string text() const {
    return replaced(replaced(Scratch::kRun, "text.txt", (scratch_ / "text.txt").string()), "heads = 2",
                    "heads = 2\ndropout = 0.1");
  }
  RunResult run(bool resume) {
    TrainRequest request;
    request.run_dir = (scratch_ / "run").string();
    request.resume = resume;
    request.quiet = true;
    RunResult result = runtime_.train(config_, request);
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.steps, kSteps);
    return result;
  }
  fs::path checkpoints() const { return scratch_ / "run/1/checkpoints"; }

  Scratch scratch_;
  Runtime runtime_;
  Config config_;
  std::unique_ptr<FileSystem> files_ = make_posix_files();
};

TEST_F(StateHash, SeesEveryTensorAndEveryNumber) {
  const RunResult whole = run(false);
  Saved saved(CheckpointStore(*files_, checkpoints().string(), {}).open(kSteps));
  saved.write(*files_, checkpoints(), kSteps);
  const RunResult copied = run(true);
  ASSERT_EQ(copied.state_hash, whole.state_hash) << "a copy of the checkpoint is another state";
  ASSERT_EQ(copied.weights_hash, whole.weights_hash);

  int models = 0, others = 0;
  for (std::size_t i = 0; i < saved.tensors.size(); ++i) {
    const std::string& name = saved.tensors[i].name;
    ASSERT_FALSE(saved.bytes[i].empty()) << name;
    std::byte& middle = saved.bytes[i][saved.bytes[i].size() / 2];
    middle ^= std::byte{1};
    saved.write(*files_, checkpoints(), kSteps);
    middle ^= std::byte{1};
    const RunResult flipped = run(true);
    EXPECT_NE(flipped.state_hash, whole.state_hash) << name;
    const bool model = name.find("model/") != std::string::npos;
    EXPECT_EQ(flipped.weights_hash != whole.weights_hash, model) << name;
    ++(model ? models : others);
  }
  EXPECT_GT(models, 10);
  EXPECT_EQ(others, 2 * models) << "AdamW keeps two moments of each parameter";

  int numbers = 0;
  for (MetaBlock& block : saved.meta) {
    // The slot comes from the generation's own step; data and shape are compared, other metrics depend on
    // when they are written, and the place of the evaluated weights is for readers.
    const bool beside = block.name.starts_with("data/") || block.name.starts_with("run/") ||
                        block.name.starts_with("rank0/lines/") || block.name.starts_with("evaluated/");
    if (block.name == "rank0/core/slot" || beside || block.value.empty()) continue;
    char& last = block.value.back();
    const char before = last;
    last = last == '1' ? '2' : '1';
    saved.write(*files_, checkpoints(), kSteps);
    last = before;
    EXPECT_NE(run(true).state_hash, whole.state_hash) << block.name;
    ++numbers;
  }
  EXPECT_GE(numbers, 4);
}

}  // namespace
}  // namespace tenon::integration::state_hash_test
