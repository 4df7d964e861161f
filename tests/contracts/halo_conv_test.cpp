// Rehearses model parallelism in space: a 1-D convolution whose signal is sharded over two ranks of one
// replica, with halos from the neighbours and the exact adjoint of that exchange. <A u, c> = <u, A' c> in
// f64, and every number is that of one rank.
#include "support.hpp"

#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <cmath>

namespace rehearsal::halo_conv_test {
namespace {

using namespace tenon;

TensorView f64(double* data, std::int64_t count) {
  return {data, Shape{count}, DType::kF64};
}

/// y[i] = w[0] x[i - 1] + w[1] x[i] + w[2] x[i + 1], zero outside the whole signal; w is held by all ranks.
class HaloConv final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "halo_conv", .summary = "convolution over a sharded signal"};
  explicit HaloConv(const Options&) {}
  void infer(InferContext& context) override {
    axis_ = context.mesh().axes() > 0 ? context.mesh().axis(0) : nullptr;
    ParameterSpec w;
    w.name = "w", w.dtype = DType::kF64, w.shape = Shape{3}, w.init_scale = 1;
    w_ = context.parameter(w);
    context.keep_input(0);
    context.output(context.input(0));
  }
  void forward(ForwardContext& context) override {
    const auto x = context.input(0).span<double>(), y = context.output(0).span<double>();
    const double* w = context.parameter(w_).as<double>();
    const auto n = x.size();
    double halo[2] = {0, 0};  // x[-1], x[n]
    swap_edges(x[0], x[n - 1], halo[0], halo[1]);
    for (std::size_t i = 0; i < n; ++i)
      y[i] = w[0] * (i == 0 ? halo[0] : x[i - 1]) + w[1] * x[i] + w[2] * (i + 1 == n ? halo[1] : x[i + 1]);
  }
  void backward(BackwardContext& context) override {
    const auto x = context.input(0).span<double>(), dy = context.output_gradient(0).span<double>();
    const double* w = context.parameter(w_).as<double>();
    const auto dx = context.input_gradient(0).view.span<double>();
    const auto n = x.size();
    double halo[2] = {0, 0}, back[2] = {0, 0}, dw[3] = {0, 0, 0};
    swap_edges(x[0], x[n - 1], halo[0], halo[1]);
    for (std::size_t i = 0; i < n; ++i) {
      dx[i] = (i + 1 == n ? 0 : w[0] * dy[i + 1]) + w[1] * dy[i] + (i == 0 ? 0 : w[2] * dy[i - 1]);
      dw[0] += dy[i] * (i == 0 ? halo[0] : x[i - 1]);
      dw[1] += dy[i] * x[i];
      dw[2] += dy[i] * (i + 1 == n ? halo[1] : x[i + 1]);
    }
    swap_edges(w[0] * dy[0], w[2] * dy[n - 1], back[0],
               back[1]);  // gradients of the neighbours' halos, which are this rank's edges
    dx[0] += back[0], dx[n - 1] += back[1];
    if (axis_ != nullptr) axis_->all_reduce(f64(dw, 3), ReduceOp::kSum);
    std::copy_n(dw, 3, context.gradient(w_).view.as<double>());
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  /// Sends `low` to the previous rank and `high` to the next one, and receives theirs; without a neighbour
  /// the value stays.
  void swap_edges(double low, double high, double& from_before, double& from_behind) {
    if (axis_ == nullptr) return;
    const bool first = axis_->rank() == 0;
    double &mine = first ? high : low, &theirs = first ? from_behind : from_before;
    const Request sent = axis_->start_send(f64(&mine, 1), first ? 1 : 0, 0);
    axis_->receive(f64(&theirs, 1), first ? 1 : 0, 0);
    axis_->wait(sent);
  }
  Communicator* axis_ = nullptr;
  ParameterRef w_;
};

constexpr std::int64_t kLength = 16, kShardOffset = 7;

/// The loss <y, c>, where c is row 0 of this rank's part of the data; its gradient is c.
class Pull final : public Loss {
 public:
  static constexpr ComponentInfo kInfo{.id = "pull", .summary = "product with the data"};
  explicit Pull(const Options&) {}
  void infer(InferContext& context) override {
    axis_ = context.mesh().axes() > 0 ? context.mesh().axis(0) : nullptr;
    first_ = context.mesh().axes() > 0 && context.mesh().coordinate(0) == 1 ? kShardOffset : 0;
    context.keep_input(1);
    context.output({Shape{2}, DType::kF64, {Shape{2}}});
  }
  void forward(ForwardContext& context) override {
    const auto y = context.input(0).span<double>(), c = context.input(1).span<double>();
    const auto out = context.output(0).span<double>();
    out[0] = 0, out[1] = 1;
    for (std::size_t i = 0; i < y.size(); ++i) out[0] += y[i] * c[first_ + i];
    if (axis_ != nullptr) axis_->all_reduce(f64(out.data(), 1), ReduceOp::kSum);
  }
  void backward(BackwardContext& context) override {
    const auto dy = context.input_gradient(0).view.span<double>();
    for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = seed_ * context.input(1).as<double>()[first_ + i];
  }

 private:
  Communicator* axis_ = nullptr;
  std::size_t first_ = 0;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.halo", .version = "1.0.0", .summary = "halos"},
                    HaloConv, Pull)

/// Updates of `u` (sharded, in order of ranks) and `w` (of rank 0) in the first slot, and its loss.
struct FirstSlot {
  std::vector<double> u, du, w, dw;
  double loss = 0;
};

FirstSlot first_slot(const std::string& mesh, const Folder& folder) {
  const std::string graph =
      "model.layer=[{name='u', type='source', inputs=[], length=16, cut=7}, {name='y', type='halo_conv'}, "
      "{name='loss', type='pull', inputs=['y', 'x']}]";
  const RunResult result =
      train(plugin, "[precision]\ntype = 'fp64'\n[recovery]\ntype = 'full'\n" + mesh,
            {graph, "run.steps=1", "data.batch=1"}, folder, mesh.empty() ? "one" : "two");
  FirstSlot slot;
  slot.loss = result.metrics.at("train/loss");
  std::vector<Update> updates = probe_log.take();
  std::stable_sort(updates.begin(), updates.end(),
                   [](const Update& a, const Update& b) { return a.rank < b.rank; });
  for (const Update& update : updates) {
    const bool is_w = update.weight.size() == 3;
    if (is_w) slot.w = update.weight, slot.dw = update.gradient;
    if (is_w) continue;
    slot.u.insert(slot.u.end(), update.weight.begin(), update.weight.end());
    slot.du.insert(slot.du.end(), update.gradient.begin(), update.gradient.end());
  }
  return slot;
}

TEST(HaloConv, HasItsExactAdjointAndTheNumbersOfOneRank) {
  const Folder folder;
  const FirstSlot one = first_slot("", folder);
  const FirstSlot two = first_slot("[parallel]\ngrid = [2]\n[transport]\ntype = 'thread'\n", folder);
  ASSERT_EQ(one.u, two.u);
  ASSERT_EQ(one.w, two.w);
  for (const FirstSlot& slot : {one, two}) {
    double through_u = 0, through_w = 0;  // the loss is linear in both
    for (std::size_t i = 0; i < slot.u.size(); ++i) through_u += slot.u[i] * slot.du[i];
    for (std::size_t i = 0; i < 3; ++i) through_w += slot.w[i] * slot.dw[i];
    EXPECT_NEAR(through_u, slot.loss, 1e-13);
    EXPECT_NEAR(through_w, slot.loss, 1e-13);
  }
  EXPECT_NEAR(one.loss, two.loss, 1e-13);
  for (std::size_t i = 0; i < kLength; ++i) EXPECT_NEAR(one.du[i], two.du[i], 1e-14) << i;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(one.dw[i], two.dw[i], 1e-13) << i;
}

}  // namespace
}  // namespace rehearsal::halo_conv_test
