// Layers that learn from a teacher: `distillation` and `hidden_match` against PyTorch and against
// differences, in every form, in chunks and whole; a student that is its teacher; rows that do not count;
// memory; what both refuse. As many rows as classes, so that the teacher's head can be data.
#include "cases.hpp"

#include "reference/recorded.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tenon::testing {
namespace {

using ::testing::HasSubstr;

struct DistilSetting {
  const char *device, *precision, *kernels;
};
constexpr DistilSetting kDistilSettings[] = {
    {"cpu", "fp64", "reference"}, {"cpu", "fp64", "auto"},           {"cpu", "fp32", "reference"},
    {"cpu", "fp32", "auto"},      {"cuda_emulated", "fp64", "auto"}, {"cuda_emulated", "fp32", "auto"}};

TestField recorded_field(const Recorded& recorded, const std::string& prefix, const std::string& name) {
  return {name, recorded.shape(prefix + name), name == "targets" ? DType::kI32 : DType::kF64,
          recorded.values(prefix + name)};
}

/// A layer of this suite with its data, on a device and under a policy of its own.
class Learner {
 public:
  Learner(const DistilSetting& setting, std::vector<NodeSpec> nodes, std::vector<TestField> fields)
      : bench(setting.device, setting.kernels, 1),
        precision(bench.make_component<Precision>(setting.precision, "")),
        harness({.layers = &*bench.layers,
                 .device = &*bench.device,
                 .host = &bench.host,
                 .precision = &*precision,
                 .keep_values = false,
                 .poison = true},
                std::move(nodes), {}, std::move(fields)) {}

  double mean() {
    const double sum = harness.forward();
    return sum / harness.executor().losses().back().count;
  }

  Bench bench;
  Made<Precision> precision;
  LayerHarness harness;
};

std::vector<NamedOption> distil_options(std::vector<NamedOption> options, std::int64_t classes,
                                        std::int64_t chunk_rows) {
  options.push_back({"vocabulary", classes});
  options.push_back({"chunk_rows", chunk_rows});
  options.push_back({"init_scale", 0.7});
  return options;
}

NodeSpec distil_node(std::vector<NamedOption> options, std::int64_t classes, std::int64_t chunk_rows) {
  return {"n",
          "distillation",
          {"x_student", "targets", "x_teacher", "head_teacher"},
          distil_options(std::move(options), classes, chunk_rows)};
}

struct RecordedDistil {
  const char* name;
  std::vector<NamedOption> options;
  double tokens = 0;  ///< weight of the cross-entropy
};

std::vector<RecordedDistil> recorded_distils() {
  const auto form = [](const char* name) { return NamedOption{"form", std::string(name)}; };
  const NamedOption square{"scale_by_square", true};
  const auto hot = [](double t) { return NamedOption{"temperature", t}; };
  const auto top = [](std::int64_t k) { return NamedOption{"top_k", k}; };
  return {{"forward", {}},
          {"forward_hot", {hot(2.5), square}},
          {"reverse", {form("reverse"), hot(1.5)}},
          {"reverse_hot", {form("reverse"), hot(4), square}},
          {"top_k", {form("top_k"), top(3)}},
          {"top_k_hot", {form("top_k"), hot(2), square, top(5)}},
          {"with_tokens", {hot(2), square}, 0.7}};
}

TEST(DistillationLayer, N13_GivesTheRecordedLossesAndGradients) {
  const Recorded recorded("distillation");
  for (const RecordedDistil& c : recorded_distils())
    for (const DistilSetting& setting : kDistilSettings)
      for (const std::int64_t chunk : {0, 4}) {
        const std::string prefix = std::string(c.name) + ".";
        std::vector<NamedOption> options = c.options;
        std::vector<NodeSpec> nodes;
        if (c.tokens != 0) options.push_back({"metric", std::string("logit_loss")});
        nodes.push_back(distil_node(options, 11, chunk));
        if (c.tokens != 0)
          nodes.push_back(
              {"sum", "add_losses", {"n", "n:1"}, {{"weights", std::vector<double>{1, c.tokens}}}});
        std::vector<TestField> fields;
        for (const char* input : {"x_student", "targets", "x_teacher", "head_teacher"})
          fields.push_back(recorded_field(recorded, prefix, input));
        Learner learner(setting, nodes, fields);
        learner.harness.set_parameter("n.weight", recorded.values(prefix + "w"));
        // The recorded float32 errors are below 3e-7.
        const double bound = std::string_view(setting.precision) == "fp64" ? 1e-12 : 3e-6;
        const double expected = recorded.values(prefix + "loss")[0], found = learner.mean();
        const std::string where = prefix + setting.device + " " + setting.precision + " " + setting.kernels;
        EXPECT_NEAR(found, expected, bound * std::abs(expected)) << where;
        learner.harness.backward(1 / learner.harness.executor().losses().back().count, true);
        EXPECT_LT(relative_error(learner.harness.gradient("n.weight"), recorded.values(prefix + "d_w")),
                  bound)
            << where;
        EXPECT_LT(relative_error(learner.harness.input_gradient("x_student"),
                                 recorded.values(prefix + "d_x_student")),
                  bound)
            << where;
        for (const char* constant : {"x_teacher", "head_teacher"})
          for (const double value : learner.harness.input_gradient(constant)) EXPECT_EQ(value, 0) << where;
      }
}

TEST(HiddenMatchLayer, N13_GivesTheRecordedLossesAndGradients) {
  const Recorded recorded("distillation");
  for (const char* loss : {"mse", "normalised_mse", "cosine"})
    for (const bool project : {false, true})
      for (const DistilSetting& setting : kDistilSettings) {
        const std::string prefix = std::string(loss) + (project ? "_projected." : ".");
        std::vector<TestField> fields;
        for (const char* input : {"student", "teacher", "targets"})
          fields.push_back(recorded_field(recorded, prefix, input));
        Learner learner(setting,
                        {{"n",
                          "hidden_match",
                          {"student", "teacher", "targets"},
                          {{"loss", std::string(loss)}, {"project", project}}}},
                        fields);
        if (project) learner.harness.set_parameter("n.weight", recorded.values(prefix + "w"));
        const double bound = std::string_view(setting.precision) == "fp64" ? 1e-12 : 3e-6;
        const double expected = recorded.values(prefix + "loss")[0], found = learner.mean();
        const std::string where = prefix + setting.device + " " + setting.precision + " " + setting.kernels;
        EXPECT_NEAR(found, expected, bound * std::abs(expected)) << where;
        learner.harness.backward(1 / learner.harness.executor().losses().back().count, true);
        EXPECT_LT(
            relative_error(learner.harness.input_gradient("student"), recorded.values(prefix + "d_student")),
            bound)
            << where;
        if (project) {
          EXPECT_LT(relative_error(learner.harness.gradient("n.weight"), recorded.values(prefix + "d_w")),
                    bound)
              << where;
        }
        for (const double value : learner.harness.input_gradient("teacher")) EXPECT_EQ(value, 0) << where;
      }
}

constexpr std::int64_t kClasses = 9, kWidth = 5;

std::vector<TestField> distil_fields() {
  return {real_field("x_student", {kClasses, kWidth}), masked_targets({kClasses}, kClasses),
          real_field("x_teacher", {kClasses, 4}), real_field("head_teacher", {kClasses, 4})};
}

/// The largest difference between the gradient of the sum and five-point differences in one tensor.
double difference_error(LayerHarness& harness, const std::vector<double>& start,
                        const std::function<void(const std::vector<double>&)>& set,
                        const std::vector<double>& gradient) {
  constexpr double kStep = 1e-3;
  double worst = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    const auto at = [&](double shift) {
      std::vector<double> moved = start;
      moved[i] += shift;
      set(moved);
      return harness.forward();
    };
    const double slope = (at(-2 * kStep) - 8 * at(-kStep) + 8 * at(kStep) - at(2 * kStep)) / (12 * kStep);
    worst = std::max(worst, std::abs(slope - gradient[i]));
  }
  set(start);
  return worst;
}

TEST(DistillationLayer, N13_GradientsAreThoseOfDifferences) {
  for (const RecordedDistil& c : recorded_distils())
    for (const std::int64_t chunk : {0, 4}) {
      Learner learner(kDistilSettings[0], {distil_node(c.options, kClasses, chunk)}, distil_fields());
      LayerHarness& harness = learner.harness;
      harness.forward();
      harness.backward(1, true);
      const auto of_weight = harness.gradient("n.weight"), of_x = harness.input_gradient("x_student");
      // Truncation of the differences is about 1e-12 for sums of this size, times T^2 at most 16.
      EXPECT_LT(difference_error(
                    harness, harness.parameter("n.weight"),
                    [&](const std::vector<double>& values) { harness.set_parameter("n.weight", values); },
                    of_weight),
                2e-9)
          << c.name;
      EXPECT_LT(difference_error(
                    harness, harness.field("x_student"),
                    [&](const std::vector<double>& values) { harness.set_field("x_student", values); }, of_x),
                2e-9)
          << c.name;
    }
}

TEST(HiddenMatchLayer, N13_GradientsAreThoseOfDifferences) {
  for (const char* loss : {"mse", "normalised_mse", "cosine"}) {
    Learner learner(
        kDistilSettings[0],
        {{"n",
          "hidden_match",
          {"student", "teacher", "targets"},
          {{"loss", std::string(loss)}, {"project", true}}}},
        {real_field("student", {4, 3, 5}), real_field("teacher", {4, 3, 6}), masked_targets({4, 3}, 3)});
    LayerHarness& harness = learner.harness;
    harness.forward();
    harness.backward(1, true);
    const auto of_weight = harness.gradient("n.weight"), of_x = harness.input_gradient("student");
    EXPECT_LT(
        difference_error(
            harness, harness.parameter("n.weight"),
            [&](const std::vector<double>& values) { harness.set_parameter("n.weight", values); }, of_weight),
        2e-9)
        << loss;
    EXPECT_LT(difference_error(
                  harness, harness.field("student"),
                  [&](const std::vector<double>& values) { harness.set_field("student", values); }, of_x),
              2e-9)
        << loss;
  }
}

TEST(DistillationLayer, N13_AStudentThatIsItsTeacherHasNoLossAndNoGradient) {
  for (const char* precision : {"fp64", "fp32", "bf16"})
    for (const char* device : {"cpu", "cuda_emulated"})
      for (const RecordedDistil& c : recorded_distils())
        for (const std::int64_t chunk : {0, 4}) {
          std::vector<TestField> fields = distil_fields();
          fields[2] = real_field("x_student", {kClasses, kWidth});
          fields[2].name = "x_teacher";
          fields[3] = real_field("head_teacher", {kClasses, kWidth});
          Learner learner({device, precision, "auto"}, {distil_node(c.options, kClasses, chunk)}, fields);
          learner.harness.set_parameter("n.weight", fields[3].values);
          const double sum = learner.harness.forward();
          learner.harness.backward(1, true);
          const std::string where = std::string(c.name) + " " + precision + " " + device;
          // Both products have the same operands: the linear site's may sum in another order than the
          // device's, so a rounding of logits of size 10 may remain, in the square.
          const double small = std::string_view(precision) == "fp64" ? 1e-13 : 2e-5;
          EXPECT_NEAR(sum, 0, small) << where;
          for (const auto& gradient :
               {learner.harness.gradient("n.weight"), learner.harness.input_gradient("x_student")})
            for (const double value : gradient) EXPECT_NEAR(value, 0, 16 * small) << where;
        }
}

TEST(HiddenMatchLayer, N13_EqualStatesHaveNoLossAndNoGradient) {
  for (const char* precision : {"fp64", "fp32", "bf16"})
    for (const char* loss : {"mse", "normalised_mse", "cosine"}) {
      TestField teacher = real_field("student", {4, 7});
      teacher.name = "teacher";
      Learner learner(
          {"cpu", precision, "auto"},
          {{"n", "hidden_match", {"student", "teacher", "targets"}, {{"loss", std::string(loss)}}}},
          {real_field("student", {4, 7}), teacher, masked_targets({4}, 3)});
      EXPECT_EQ(learner.harness.forward(), 0) << loss;
      learner.harness.backward(1, true);
      for (const double value : learner.harness.input_gradient("student")) EXPECT_EQ(value, 0) << loss;
    }
}

/// Values of a field in the rows that do not count.
void spoil(TestField& field, const TestField& targets, double value) {
  const std::size_t width = field.values.size() / targets.values.size();
  for (std::size_t i = 0; i < field.values.size(); ++i)
    if (targets.values[i / width] < 0) field.values[i] = value;
}

TEST(DistillationLayer, RowsThatDoNotCountChangeNothing) {
  for (const RecordedDistil& c : recorded_distils()) {
    std::vector<double> sums, counts;
    std::vector<std::vector<double>> gradients;
    for (const double value : {0.0, 3.0}) {
      std::vector<TestField> fields = distil_fields();
      spoil(fields[0], fields[1], value);
      spoil(fields[2], fields[1], -value);
      Learner learner(kDistilSettings[1], {distil_node(c.options, kClasses, 4)}, fields);
      sums.push_back(learner.harness.forward());
      counts.push_back(learner.harness.executor().losses().back().count);
      learner.harness.backward(1, true);
      gradients.push_back(learner.harness.gradient("n.weight"));
      const auto dx = learner.harness.input_gradient("x_student");
      for (std::size_t i = 0; i < dx.size(); ++i) {
        if (fields[1].values[i / kWidth] >= 0) continue;
        EXPECT_EQ(dx[i], 0) << c.name;
      }
    }
    EXPECT_EQ(counts[0], 6) << c.name;
    EXPECT_GT(sums[0], 0.1) << c.name;
    EXPECT_EQ(sums[0], sums[1]) << c.name;
    EXPECT_EQ(gradients[0], gradients[1]) << c.name;
  }
}

TEST(HiddenMatchLayer, RowsThatDoNotCountChangeNothing) {
  for (const char* loss : {"mse", "normalised_mse", "cosine"}) {
    std::vector<double> sums;
    for (const double value : {0.0, 1e9}) {
      std::vector<TestField> fields{real_field("student", {6, 5}), real_field("teacher", {6, 5}),
                                    masked_targets({6}, 3)};
      spoil(fields[0], fields[2], value);
      Learner learner(
          kDistilSettings[1],
          {{"n", "hidden_match", {"student", "teacher", "targets"}, {{"loss", std::string(loss)}}}}, fields);
      sums.push_back(learner.harness.forward());
      EXPECT_EQ(learner.harness.executor().losses().back().count, 4);
      learner.harness.backward(1, true);
      const auto dx = learner.harness.input_gradient("student");
      for (std::size_t i = 0; i < dx.size(); ++i) {
        if (fields[2].values[i / 5] >= 0) continue;
        EXPECT_EQ(dx[i], 0) << loss;
      }
    }
    EXPECT_GT(sums[0], 0.1) << loss;
    EXPECT_EQ(sums[0], sums[1]) << loss;
  }
}

TEST(DistillationLayer, TheSquareOfTheTemperatureIsAFactorOfLossAndGradient) {
  std::vector<double> sums;
  std::vector<std::vector<double>> gradients;
  for (const bool square : {false, true}) {
    Learner learner(kDistilSettings[0],
                    {distil_node({{"temperature", 3.0}, {"scale_by_square", square}}, kClasses, 0)},
                    distil_fields());
    sums.push_back(learner.harness.forward());
    learner.harness.backward(1, true);
    gradients.push_back(learner.harness.gradient("n.weight"));
  }
  EXPECT_NEAR(sums[1] / sums[0], 9, 1e-13);
  for (double& value : gradients[0]) value *= 9;
  EXPECT_LT(relative_error(gradients[1], gradients[0]), 1e-14);
}

TEST(DistillationLayer, NeverHoldsMoreThanOneChunkOfBothLogits) {
  constexpr std::int64_t rows = 4096, chunk = 256;
  const auto planned = [&](std::int64_t chunk_rows) {
    Learner learner(kDistilSettings[3],
                    {{"n",
                      "distillation",
                      {"x_student", "targets", "x_teacher", "head_teacher"},
                      distil_options({}, rows, chunk_rows)}},
                    {real_field("x_student", {rows, 2}), masked_targets({rows}, rows),
                     real_field("x_teacher", {rows, 2}), real_field("head_teacher", {rows, 2})});
    return learner.harness.executor().activation_bytes();
  };
  constexpr std::int64_t one = chunk * rows * 4;
  const std::int64_t chunked = planned(chunk);
  EXPECT_GE(chunked, 2 * one);
  EXPECT_LT(chunked, 2 * one + one / 4) << "both chunks, and little beside rows of a few columns";
}

TEST(DistillationLayer, RefusesWhatDoesNotFit) {
  const auto message = [](std::vector<NamedOption> options, std::int64_t teacher_width,
                          std::int64_t classes) {
    std::vector<TestField> fields = distil_fields();
    fields[3] = real_field("head_teacher", {kClasses, teacher_width});
    try {
      Learner learner(kDistilSettings[0], {distil_node(std::move(options), classes, 0)}, fields);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({}, 4, kClasses), "accepted");
  EXPECT_THAT(message({}, 3, kClasses),
              HasSubstr("layer 'n': expected the teacher's head [9, 4], found [9, 3]"));
  EXPECT_THAT(message({}, 4, 8),
              HasSubstr("layer 'n': the teacher's head has 9 classes and the student's 8; a student learns "
                        "from a teacher of its own vocabulary"));
  EXPECT_THAT(message({{"form", std::string("top_k")}}, 4, kClasses), HasSubstr("which needs 'top_k'"));
  EXPECT_THAT(message({{"top_k", std::int64_t{3}}}, 4, kClasses), HasSubstr("which has no 'top_k'"));
}

TEST(HiddenMatchLayer, RefusesWhatDoesNotFit) {
  const auto message = [](const Shape& teacher, bool project) {
    try {
      Learner learner(
          kDistilSettings[0],
          {{"n", "hidden_match", {"student", "teacher", "targets"}, {{"project", project}}}},
          {real_field("student", {4, 3, 5}), real_field("teacher", teacher), masked_targets({4, 3}, 3)});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({4, 3, 5}, false), "accepted");
  EXPECT_EQ(message({4, 3, 6}, true), "accepted");
  EXPECT_THAT(message({4, 3, 6}, false),
              HasSubstr("layer 'n': the student's states have 5 columns and the teacher's 6; set project = "
                        "true for a trained projection"));
  EXPECT_THAT(message({4, 2, 5}, false), HasSubstr("the teacher's rows must be those of the student"));
}

}  // namespace
}  // namespace tenon::testing
