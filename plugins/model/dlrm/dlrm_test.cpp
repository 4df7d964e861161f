// DLRM as a whole: the published sizes, and loss, gradients and three steps of SGD against PyTorch
// (tests/reference/recsys.safetensors), with repeated rows, missing rows and empty bags.
#include "reference/recorded.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tenon::testing::dlrm_test {
namespace {

/// Ids of one place, or of `bag` places where that is given.
DataInfo clicks(std::int64_t dense, std::int64_t tables, std::int64_t bag = 0) {
  DataInfo data;
  data.fields = {{"dense", DType::kF32, {dense}},
                 {"ids", DType::kI32, bag > 0 ? Shape{tables, bag} : Shape{tables}},
                 {"labels", DType::kI32, {}}};
  return data;
}

struct Published {
  const char* name;
  const char *layers, *rows;
  std::int64_t parameters, total_rows, width;
};
constexpr Published kPublished[] = {
    {"kaggle", "bottom = [512, 256, 64, 16]\ntop = [512, 256, 1]\n",
     "1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, "
     "10, 5652, "
     "2173, 4, 7046547, 18, 15, 286181, 105, 142572",
     475'985, 33'762'577, 16},
    {"terabyte", "bottom = [512, 256, 64]\ntop = [512, 512, 256, 1]\n",
     "9980333, 36084, 17217, 7378, 20134, 3, 7112, 1442, 61, 9758201, 1333352, 313829, 10, 2208, 11156, 122, "
     "4, 970, 14, "
     "9994222, 7267859, 9946608, 415421, 12420, 101, 36",
     762'177, 49'126'297, 64},
    {"mlperf", "bottom = [512, 256, 128]\ntop = [1024, 1024, 512, 256, 1]\n",
     "40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, "
     "155, 4, 976, "
     "14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36",
     2'368'897, 204'184'588, 128},
};

// Declarations alone: the largest tables would take 104.5 GB.
TEST(DlrmModel, HasThePublishedSizes) {
  Bench bench("cpu", "auto", 1);
  const auto precision = bench.make_component<Precision>("fp32", "");
  for (const Published& size : kPublished) {
    const DataInfo data = clicks(13, 26);
    ExecutorSpec spec;
    spec.layers = &*bench.layers, spec.device = &*bench.device, spec.host = &bench.host,
    spec.precision = &*precision;
    spec.training = false;
    const std::string options = std::string(size.layers) + "rows = [" + size.rows + "]";
    const Executor executor(spec, bench.make_component<Model>("dlrm", options)->build(data), data);
    std::int64_t dense = 0, rows = 0, bytes = 0;
    for (const ParameterInfo& info : executor.parameters()) {
      if (info.spec.role != Role::kRowTable) {
        dense += info.spec.shape.elements();
        continue;
      }
      rows += info.spec.shape[0];
      bytes += dtype_bytes(info.spec.dtype, info.spec.shape.elements());
      EXPECT_EQ(info.spec.shape[1], size.width) << size.name;
    }
    EXPECT_EQ(dense, size.parameters) << size.name;
    EXPECT_EQ(rows, size.total_rows) << size.name;
    EXPECT_EQ(bytes, size.total_rows * size.width * 4) << size.name;
  }
}

/// A model on given batches, stepped by SGD.
class Trainer {
 public:
  Trainer(const std::string& model, const std::string& options, const DataInfo& data,
          std::vector<TestField> batch, const std::string& precision, const std::string& kernels, int threads)
      : bench_("cpu", kernels, threads),
        precision_(bench_.make_component<Precision>(precision, "")),
        optimizer_(bench_.make_component<Optimizer>("sgd", "")),
        harness_({.layers = &*bench_.layers,
                  .device = &*bench_.device,
                  .host = &bench_.host,
                  .precision = &*precision_},
                 bench_.make_component<Model>(model, options)->build(data).nodes, {}, std::move(batch)) {}

  LayerHarness& harness() { return harness_; }
  /// Mean loss of the batch, with its gradients.
  double differentiate() {
    const double sum = harness_.forward(), count = harness_.executor().losses()[0].count;
    harness_.backward(1 / count, true);
    return sum / count;
  }
  void update(double lr, std::int64_t count) {
    const UpdateContext context{.lr = lr, .count = count, .device = &*bench_.device};
    for (const ParameterInfo& info : harness_.executor().parameters()) {
      if (info.spec.role == Role::kRowTable) continue;
      optimizer_->step(context, {.weights = harness_.weights().tensor(info.index),
                                 .gradients = harness_.gradients().tensor(info.index),
                                 .state = {}});
    }
    auto* rows = static_cast<RowOptimizer*>(optimizer_->query(RowOptimizer::kId));
    ASSERT_NE(rows, nullptr);
    for (const RowGradient& gradient : harness_.executor().row_gradients())
      rows->step_rows(context, *harness_.weights().table(gradient.parameter), {}, gradient);
    harness_.weights().touch(-1);
  }

 private:
  Bench bench_;
  Made<Precision> precision_;
  Made<Optimizer> optimizer_;
  LayerHarness harness_;
};

std::vector<TestField> recorded_batch(const Recorded& recorded, std::int64_t t) {
  return {{"dense", {6, 4}, DType::kF64, recorded.row("dlrm.dense", t)},
          {"ids", {6, 3, 3}, DType::kI32, recorded.row("dlrm.ids", t)},
          {"labels", {6}, DType::kI32, recorded.row("dlrm.labels", t)}};
}

/// The recorded model with its first weights, on its first batch.
std::unique_ptr<Trainer> recorded_model(const Recorded& recorded, const std::string& mode,
                                        const char* precision, const char* kernels, int threads = 1) {
  auto twin = std::make_unique<Trainer>(
      "dlrm", "bottom = [6, 4]\ntop = [5, 1]\nrows = [5, 7, 3]\nmode = \"" + mode + "\"", clicks(4, 3, 3),
      recorded_batch(recorded, 0), precision, kernels, threads);
  for (const ParameterInfo& info : twin->harness().executor().parameters())
    twin->harness().set_parameter(info.spec.name, recorded.values("dlrm.init." + info.spec.name));
  return twin;
}

struct Setting {
  const char *name, *precision, *kernels;
  double bound;  ///< relative to the largest element: PyTorch's own float32 loses 4e-7; bfloat16 rounds each
                 ///< of some ten values on the way by 2^-8 at most
};
std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.name;
}
constexpr Setting kSettings[] = {{"f64", "fp64", "reference", 1e-13},
                                 {"f32_reference", "fp32", "reference", 4e-6},
                                 {"f32_fast", "fp32", "auto", 4e-6},
                                 {"bf16", "bf16", "auto", 0.03}};

class DlrmAgainstPyTorch : public ::testing::TestWithParam<Setting> {
 protected:
  Recorded recorded_{"recsys"};
};

TEST_P(DlrmAgainstPyTorch, GivesItsLogitsLossAndGradients) {
  for (const std::string mode : {"sum", "mean"}) {
    const auto twin = recorded_model(recorded_, mode, GetParam().precision, GetParam().kernels);
    const std::string recorded = "dlrm_" + mode + ".";
    const double loss = recorded_.values(recorded + "step_loss")[0];
    EXPECT_NEAR(twin->differentiate(), loss, GetParam().bound * loss) << mode;
    EXPECT_LT(relative_error(twin->harness().value("top.1"), recorded_.values(recorded + "logits")),
              GetParam().bound);
    int tables = 0;
    for (const ParameterInfo& info : twin->harness().executor().parameters()) {
      tables += info.spec.role == Role::kRowTable ? 1 : 0;
      EXPECT_LT(relative_error(twin->harness().gradient(info.spec.name),
                               recorded_.values(recorded + "grad." + info.spec.name)),
                GetParam().bound)
          << mode << " " << info.spec.name;
    }
    EXPECT_EQ(tables, 3);
  }
}

TEST_P(DlrmAgainstPyTorch, TakesItsThreeSteps) {
  for (const std::string mode : {"sum", "mean"}) {
    const auto twin = recorded_model(recorded_, mode, GetParam().precision, GetParam().kernels);
    const std::string recorded = "dlrm_" + mode + ".";
    const auto losses = recorded_.values(recorded + "step_loss");
    for (std::int64_t t = 0; t < 3; ++t) {
      for (const TestField& field : recorded_batch(recorded_, t))
        twin->harness().set_field(field.name, field.values);
      const double loss = losses[t];
      EXPECT_NEAR(twin->differentiate(), loss, GetParam().bound * loss) << mode << " step " << t;
      twin->update(0.5, t + 1);
    }
    for (const ParameterInfo& info : twin->harness().executor().parameters()) {
      EXPECT_LT(relative_error(twin->harness().parameter(info.spec.name),
                               recorded_.values(recorded + "final." + info.spec.name)),
                GetParam().bound)
          << mode << " " << info.spec.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, DlrmAgainstPyTorch, ::testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DlrmModel, HasTheSameBitsWithAnyNumberOfThreads) {
  const Recorded recorded("recsys");
  std::map<std::string, std::vector<double>> first;
  for (const int threads : {1, 2, 3}) {
    const auto twin = recorded_model(recorded, "sum", "fp32", "reference", threads);
    twin->differentiate();
    twin->update(0.5, 1);
    twin->differentiate();
    if (threads == 1) first = twin->harness().all_gradients();
    EXPECT_EQ(twin->harness().all_gradients(), first) << threads;
  }
  set_parallel_threads(1);
}

// A click where exactly one of two rows is the second of its table: no sum of functions of one row predicts
// it.
TEST(DlrmModel, LearnsPairsThatALogisticRegressionCannot) {
  const auto trained = [](const std::string& model, const std::string& options) {
    Trainer trainer(model, options + "rows = [2, 2]", clicks(1, 2),
                    {{"dense", {4, 1}, DType::kF64, {0, 0, 0, 0}},
                     {"ids", {4, 2}, DType::kI32, {0, 0, 0, 1, 1, 0, 1, 1}},
                     {"labels", {4}, DType::kI32, {0, 1, 1, 0}}},
                    "fp32", "auto", 1);
    for (std::int64_t step = 1; step <= 400; ++step) {
      trainer.differentiate();
      trainer.update(0.5, step);
    }
    return trainer.differentiate();
  };
  EXPECT_LT(trained("dlrm", "bottom = [4]\ntop = [8, 1]\n"), 0.05);
  EXPECT_NEAR(trained("logistic_regression", ""), std::log(2.0), 1e-3) << "the best that it can do";
}

}  // namespace
}  // namespace tenon::testing::dlrm_test
