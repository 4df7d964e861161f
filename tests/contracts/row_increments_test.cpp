// Rehearses sparse training with increments: a table of rows with gradients for the rows it read, a row-wise
// optimizer, and saves of the rows that were accessed since the last one. A run that crashes and resumes from
// a chain of increments ends with the bits of a run that did not, whatever the optimizer keeps per row.
#include "partial_policy.hpp"
#include "row_adagrad.hpp"
#include "support.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>

#include <numeric>

namespace rehearsal {
namespace {

using namespace tenon;

constexpr std::int64_t kRows = 512, kWidth = 16;

/// The loss |row - x|^2 / 2, where the row of a sample follows from its first element.
class Lookup final : public Loss {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("crash_at", "-1")};
  static constexpr ComponentInfo kInfo{.id = "lookup", .summary = "rows near samples", .options = kOptions};
  explicit Lookup(const Options& options) : crash_at_(options.integer("crash_at")) {}
  void infer(InferContext& context) override {
    ParameterSpec rows;
    rows.name = "rows";
    rows.shape = Shape{kRows, kWidth};
    rows.role = Role::kRowTable;
    table_ = context.parameter(rows);
    context.keep_input(0);
    context.output({Shape{2}, DType::kF64});
    ids_.resize(static_cast<std::size_t>(context.input(0).shape[0]));
    rows_.resize(ids_.size() * kWidth);
  }
  void forward(ForwardContext& context) override {
    const auto x = context.input(0).span<float>();
    if (context.training() && context.step() == crash_at_) fail_run("the crash of the rehearsal");
    for (std::size_t b = 0; b < ids_.size(); ++b)
      ids_[b] = static_cast<std::int64_t>((x[b * kWidth] + 8) * 32);
    context.table(table_)->read(ids_, view());
    for (std::size_t i = 0; i < x.size(); ++i) rows_[i] -= x[i];
    context.output(0).as<double>()[0] =
        std::inner_product(rows_.begin(), rows_.end(), rows_.begin(), 0.0) / 2;
    context.output(0).as<double>()[1] = static_cast<double>(ids_.size());
  }
  void backward(BackwardContext& context) override {
    for (float& value : rows_) value *= static_cast<float>(seed_);
    context.row_gradient(table_, ids_, view());
  }

 private:
  TensorView view() { return {rows_.data(), Shape{static_cast<std::int64_t>(ids_.size()), kWidth}}; }
  std::int64_t crash_at_;
  ParameterRef table_;
  std::vector<std::int64_t> ids_;
  std::vector<float> rows_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.rows", .version = "1.0.0", .summary = "rows"}, Lookup,
                    RowAdagrad, Partial)

class RowIncrements : public testing::TestWithParam<const char*> {};

TEST_P(RowIncrements, ResumeToTheBitsOfAWholeRun) {
  const Folder folder;
  std::vector<std::string> sets = {"model.layer=[{name='loss', type='lookup', inputs=['x']}]",
                                   std::string("optimizer={type='") + GetParam() + "'}",
                                   "recovery={type='partial'}"};
  const RunResult whole = train(plugin, "", sets, folder, "whole");
  sets[0] = "model.layer=[{name='loss', type='lookup', inputs=['x'], crash_at=9}]";
  EXPECT_EQ(try_train(plugin, "", sets, folder, "broken", false).status, "failed");

  const auto files = make_posix_files();
  const std::string checkpoints = folder.path + "/broken/1/checkpoints";
  const CheckpointReader reader = CheckpointStore(*files, checkpoints, {}).open(8);
  EXPECT_EQ(reader.base(), 6) << "slots 4 <- 6 <- 8";
  const auto bytes = [&](const std::string& step) {
    std::uintmax_t sum = 0;
    for (const auto& file : std::filesystem::directory_iterator(checkpoints + "/step-" + step))
      sum += file.file_size();
    return sum;
  };
  EXPECT_GT(bytes("4"), kRows * kWidth * 4U);
  EXPECT_LT(bytes("8"), bytes("4") / 10) << "at most 4 of 512 rows were accessed in two slots";

  sets[0] = "model.layer=[{name='loss', type='lookup', inputs=['x']}]";
  const RunResult resumed = train(plugin, "", sets, folder, "broken", true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

INSTANTIATE_TEST_SUITE_P(Rules, RowIncrements,
                         testing::Values("row_adagrad", "sgd", "adagrad", "adamw", "rowwise_adagrad"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace rehearsal
