// Rehearses spectral weights: a complex parameter sharded by frequency over two ranks of one replica, in
// uneven parts, with complex values between layers and elementwise AdamW on pairs of reals. The trained
// weights are those of one rank, bit for bit, and those of a hand computation.
#include "support.hpp"

#include <tenon/checkpoint.hpp>

#include <cmath>
#include <complex>

namespace rehearsal::complex_sharded_test {
namespace {

using namespace tenon;

constexpr std::int64_t kFrequencies = 11, kShardOffset = 4;
using Complex = std::complex<float>;

/// Sum over samples and frequencies of |y - x|^2 / 2, over all ranks of the axis.
class SpectralLoss final : public Loss {
 public:
  static constexpr ComponentInfo kInfo{.id = "spectral_loss", .summary = "distance of spectra"};
  explicit SpectralLoss(const Options&) {}
  void infer(InferContext& context) override {
    axis_ = context.mesh().axes() > 0 ? context.mesh().axis(0) : nullptr;
    first_ = context.mesh().axes() > 0 && context.mesh().coordinate(0) == 1 ? kShardOffset : 0;
    for (int i = 0; i < 2; ++i) context.keep_input(i);
    context.output({Shape{2}, DType::kF64, {Shape{2}}});
  }
  void forward(ForwardContext& context) override {
    const TensorView out = context.output(0), x = context.input(1);
    out.as<double>()[0] = 0, out.as<double>()[1] = static_cast<double>(x.shape[0]);
    visit(context, [&](std::int64_t, Complex distance) { out.as<double>()[0] += std::norm(distance) / 2; });
    if (axis_ != nullptr) axis_->all_reduce(out.rows(0, 1), ReduceOp::kSum);
  }
  void backward(BackwardContext& context) override {
    const auto dy = context.input_gradient(0).view.span<Complex>();
    std::fill(dy.begin(), dy.end(), Complex());
    visit(context, [&](auto k, Complex distance) { dy[k] += static_cast<float>(seed_) * distance; });
  }

 private:
  template <typename Visit>
  void visit(RunContext& context, Visit each) const {
    const TensorView y = context.input(0), x = context.input(1);
    for (std::int64_t b = 0; b < x.shape[0]; ++b) {
      for (std::int64_t k = 0; k < y.elements(); ++k)
        each(k, y.as<Complex>()[k] - x.as<Complex>()[b * kFrequencies + first_ + k]);
    }
  }
  Communicator* axis_ = nullptr;
  std::int64_t first_ = 0;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.complex", .version = "1.0.0", .summary = "spectra"},
                    SpectralLoss)

const std::string kGraph =
    "model.layer=[{name='spectrum', type='source', inputs=[], length=11, cut=4, dtype='c64'}, "
    "{name='loss', type='spectral_loss', inputs=['spectrum', 'x']}]";

TEST(ComplexSharded, TrainsToTheSameBitsOnOneAndTwoModelRanks) {
  const Folder folder;
  const std::string toml = "[recovery]\ntype = 'full'\nevery = 1\nkeep = 20\nasync = false\n";
  const std::vector<std::string> sets = {kGraph, "data.width=22", "data.complex=true",
                                         "optimizer={type='adamw', lr=0.1, weight_decay=0.0}"};
  const RunResult one = train(plugin, toml, sets, folder, "one");
  const RunResult two =
      train(plugin, toml + "[parallel]\ngrid = [2]\n[transport]\ntype = 'thread'\n", sets, folder, "two");
  EXPECT_EQ(one.weights_hash, two.weights_hash);
  EXPECT_NEAR(one.metrics.at("val/loss"), two.metrics.at("val/loss"), 1e-5);

  // The first update of AdamW moves a number against its sign by the rate, real and imaginary parts
  // separately.
  const auto files = make_posix_files();
  CheckpointReader reader = CheckpointStore(*files, two.folder + "/checkpoints", {.keep = 20}).open(1);
  std::vector<float> found(2 * kFrequencies);
  reader.read("replica0/model/spectrum", {found.data(), Shape{kFrequencies}, DType::kC64});
  for (std::int64_t i = 0; i < 2 * kFrequencies; ++i) {
    const auto w =
        static_cast<float>(random_normal(random_key(1, "init:spectrum"), 0, static_cast<std::uint64_t>(i)));
    const double gradient = w - (point(0, i) + point(1, i)) / 2.0;
    EXPECT_NEAR(found[i], w - std::copysign(0.1, gradient), 1e-6) << i;
  }
}

}  // namespace
}  // namespace rehearsal::complex_sharded_test
