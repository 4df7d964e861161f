// Whole networks whose planned memory holds NaN until it is written: losses and gradients have the same bits
// as without. Memory is reused as in a run.
#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace tenon::testing {
namespace {

/// A layer with a fault: its output is the old content of its workspace.
class Careless final : public Layer {
 public:
  void infer(InferContext& context) override {
    device_ = &context.device();
    workspace_ = context.workspace(dtype_bytes(context.activations(), context.input(0).shape.elements()));
    context.output(context.input(0));
  }
  void forward(ForwardContext& context) override {
    TensorView held = context.output(0);
    held.data = context.workspace(workspace_).data;
    device_->copy(held, context.output(0));
  }
  void backward(BackwardContext&) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  Device* device_ = nullptr;
  WorkspaceRef workspace_;
};

class CarelessFactory final : public LayerFactory {
 public:
  std::unique_ptr<LayerOwner> create(const NodeSpec&) override { return std::make_unique<Owner>(); }

 private:
  struct Owner final : LayerOwner {
    Layer& layer() override { return careless; }
    Careless careless;
  };
};

TEST(Poison, ShowsALayerThatReadsWhatItHasNotWritten) {
  Bench bench("cpu", "auto", 1);
  const auto precision = bench.make_component<Precision>("fp32", "");
  CarelessFactory layers;
  for (const bool poison : {false, true}) {
    LayerHarness harness({.layers = &layers,
                          .device = &*bench.device,
                          .host = &bench.host,
                          .precision = &*precision,
                          .training = false,
                          .poison = poison},
                         {{"careless", "careless", {"x"}, {}}}, {},
                         {{"x", {2, 3}, DType::kF64, normals(6, "x")}});
    harness.forward();
    EXPECT_EQ(std::isnan(harness.value("careless").at(0)), poison);
  }
}

struct Network {
  const char *name, *model, *options;
  std::vector<TestField> fields;
  std::vector<DataAttribute> attributes;
};

/// `count` numbers below `limit`.
std::vector<double> indices(std::int64_t count, std::int64_t limit) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(static_cast<double>(i * 7 % limit));
  return result;
}

std::vector<Network> networks() {
  const auto reals = [](const char* name, Shape shape) {
    return TestField{name, shape, DType::kF32, normals(shape.elements(), name)};
  };
  const auto numbers = [](const char* name, Shape shape, std::int64_t limit) {
    return TestField{name, shape, DType::kI32, indices(shape.elements(), limit)};
  };
  const std::int64_t classes = 10, vocabulary = 61;
  return {{"resnet",
           "resnet",
           "width = 4",
           {reals("image", {2, 3, 16, 16}), numbers("label", {2}, classes)},
           {{"classes", classes}}},
          {"gpt_neo",
           "gpt_neo",
           "layers = 2\nwidth = 16\nheads = 4\nwindow = 5\ndropout = 0.1",
           {numbers("tokens", {3, 12}, vocabulary), numbers("targets", {3, 12}, vocabulary)},
           {{"vocabulary", vocabulary}}},
          {"dlrm",
           "dlrm",
           "bottom = [12, 8]\ntop = [16, 1]\nrows = [20, 7, 30]",
           {reals("dense", {4, 5}), numbers("ids", {4, 3}, 7), numbers("labels", {4}, 2)},
           {}},
          {"fno",
           "fno",
           "width = 5\nmodes = [3]\nlayers = 2\nprojection = 6\npadding = [0.25]\nnorm = \"batch\"",
           {reals("x", {2, 1, 9, 7}), reals("y", {2, 1, 9, 7})},
           {}}};
}

/// Losses and gradients of two micro-batches, twice.
std::vector<std::pair<std::string, double>> trained(const Network& network, const char* policy, int threads,
                                                    bool poison) {
  Bench bench("cpu", "auto", threads);
  const auto precision = bench.make_component<Precision>(policy, "");
  DataInfo data;
  for (const TestField& field : network.fields)
    data.fields.push_back({field.name, field.dtype, Shape(field.shape.extents().subspan(1))});
  data.attributes = network.attributes;
  LayerHarness harness({.layers = &*bench.layers,
                        .device = &*bench.device,
                        .host = &bench.host,
                        .precision = &*precision,
                        .keep_values = false,
                        .poison = poison},
                       bench.make_component<Model>(network.model, network.options)->build(data).nodes, {},
                       network.fields);
  std::vector<std::pair<std::string, double>> result;
  for (std::int64_t slot = 0; slot < 2; ++slot)
    for (int micro = 0; micro < 2; ++micro) {
      const double loss = harness.forward({.slot = slot, .micro = micro, .micros = 2});
      result.emplace_back("loss", loss);
      harness.backward(0.25, micro == 0);
      for (const ParameterInfo& info : harness.executor().parameters()) {
        if (info.spec.role == Role::kBuffer) continue;
        for (const double value : harness.gradient(info.spec.name))
          result.emplace_back(info.spec.name, value);
      }
      harness.executor().publish(harness.weights());
    }
  return result;
}

TEST(Poison, ChangesNoBitOfAWholeNetwork) {
  for (const Network& network : networks())
    for (const char* policy : {"fp32", "bf16", "fp8", "nvfp4"})
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(std::string(network.name) + ", " + policy + ", threads " + std::to_string(threads));
        const auto plain = trained(network, policy, threads, false),
                   poisoned = trained(network, policy, threads, true);
        ASSERT_EQ(plain.size(), poisoned.size());
        for (std::size_t i = 0; i < plain.size(); ++i) {
          ASSERT_TRUE(std::isfinite(plain[i].second)) << plain[i].first;
          ASSERT_EQ(plain[i], poisoned[i]) << "number " << i;
        }
      }
  set_parallel_threads(1);
}

}  // namespace
}  // namespace tenon::testing
