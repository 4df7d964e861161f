// A student that learns from a stored run through the layer: the targets are those of the run's weights,
// computed here by hand; the teacher is neither updated nor decayed nor mixed nor hashed nor saved; several
// workers, the memory plan, and a resume.
#include "contracts/support.hpp"

#include <tenon/checkpoint.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <map>

namespace rehearsal {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

constexpr std::int64_t kWidth = 16, kHidden = 8, kBatch = 2, kSlots = 12;
constexpr const char* kSgd = "optimizer={type='sgd', lr=0.1, weight_decay=0.5}";

/// As train() of the rehearsals, with no plugin but theirs and the shipped ones.
RunResult run_of(const std::string& toml, const std::vector<std::string>& sets, const Folder& folder,
                 const std::string& run, bool resume = false) {
  Runtime runtime;
  runtime.add_plugin(support_plugin);
  runtime.add_plugin(probe_plugin);
  runtime.discover({});
  TrainRequest request;
  request.run_dir = folder.path + "/" + run;
  request.resume = resume;
  request.quiet = true;
  return runtime.train(Config::parse(kBase + toml, "frozen.toml", sets), request);
}

RunResult whole_run(const std::string& toml, const std::vector<std::string>& sets, const Folder& folder,
                    const std::string& run, bool resume = false) {
  RunResult result = run_of(toml, sets, folder, run, resume);
  EXPECT_EQ(result.status, "completed") << result.error;
  return result;
}

using Weights = std::map<std::string, std::vector<float>>;

Weights stored(const std::string& run, std::int64_t slot) {
  const auto files = make_posix_files();
  CheckpointReader reader = CheckpointStore(*files, run + "/checkpoints", {}).open(slot);
  Weights weights;
  for (const TensorSpec& tensor : reader.tensors()) {
    if (!tensor.name.starts_with("replica0/model/")) continue;
    std::vector<float>& values = weights[tensor.name.substr(15)];
    values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    reader.read(tensor.name, {values.data(), tensor.shape});
  }
  return weights;
}

/// An autoencoder of the points.
RunResult train_teacher(const Folder& folder) {
  const std::string graph =
      "model.layer=[{name='hidden', type='linear', inputs=['x'], features=8, init_scale=0.5},"
      "{name='act', type='relu'}, {name='out', type='linear', features=16, init_scale=0.5},"
      "{name='loss', type='mse', inputs=['out', 'x']}]";
  return whole_run("[recovery]\ntype = 'full'\n", {graph, "optimizer={type='sgd', lr=0.05}"}, folder,
                   "teacher");
}

std::string student(const Folder& folder, const std::string& more = "") {
  return "model.layer=[{name='t', type='frozen', inputs=['x'], model='" + folder.path +
         "/teacher', outputs=['out']" + more + "}, {name='loss', type='quadratic', inputs=['t']}]";
}

/// out(sample), in double.
std::vector<double> target(const Weights& weights, std::int64_t sample) {
  std::vector<double> hidden(kHidden), out(kWidth);
  for (std::size_t h = 0; h < kHidden; ++h) {
    hidden[h] = weights.at("hidden.bias")[h];
    for (std::size_t j = 0; j < kWidth; ++j)
      hidden[h] += weights.at("hidden.weight")[h * kWidth + j] *
                   static_cast<double>(point(sample, static_cast<std::int64_t>(j)));
    hidden[h] = std::max(hidden[h], 0.0);
  }
  for (std::size_t j = 0; j < kWidth; ++j) {
    out[j] = weights.at("out.bias")[j];
    for (std::size_t h = 0; h < kHidden; ++h) out[j] += weights.at("out.weight")[j * kHidden + h] * hidden[h];
  }
  return out;
}

TEST(FrozenRun, GivesTheTargetsOfTheStoredWeightsAndLeavesThem) {
  const Folder folder;
  const RunResult teacher = train_teacher(folder);
  const Weights weights = stored(teacher.folder, kSlots);
  ASSERT_EQ(weights.size(), 4U);

  const RunResult result = whole_run("[recovery]\ntype = 'full'\n", {student(folder), kSgd}, folder, "run");
  const Weights own = stored(result.folder, kSlots);
  ASSERT_EQ(own.size(), 1U) << "the student's w, and nothing of the teacher";
  std::vector<float> w = own.at("w");
  StateHasher hasher;
  hasher.add("w", {w.data(), Shape{kWidth}});
  EXPECT_EQ(result.weights_hash, hasher.hex());
  EXPECT_EQ(stored(teacher.folder, kSlots), weights);

  double moved = 0;
  for (std::size_t j = 0; j < kWidth; ++j) {
    double expected = static_cast<float>(random_normal(random_key(1, "init:w"), 0, j));
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      double mean = 0;
      for (std::int64_t b = 0; b < kBatch; ++b) mean += target(weights, (slot * kBatch + b) % 64)[j] / kBatch;
      moved += std::abs(mean);
      expected -= 0.1 * (expected - mean + 0.5 * expected);
    }
    EXPECT_NEAR(w[j], expected, 2e-6);
  }
  EXPECT_GT(moved, 0.1) << "a teacher of zeros would teach nothing";
}

TEST(FrozenRun, ResumesToEqualBits) {
  const Folder folder;
  train_teacher(folder);
  const std::string save = "[recovery]\ntype = 'full'\nevery = 5\n";
  const RunResult whole = whole_run(save, {student(folder), kSgd}, folder, "whole");
  whole_run(save, {student(folder), kSgd, "run.steps=7"}, folder, "parts");
  const RunResult resumed = whole_run(save, {student(folder), kSgd}, folder, "parts", true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

/// A linear student, which any policy can train.
std::string linear_student(const Folder& folder, const std::string& more) {
  return "model.layer=[{name='t', type='frozen', inputs=['x'], model='" + folder.path +
         "/teacher', outputs=['out']" + more +
         "}, {name='fc', type='linear', inputs=['x'], features=16}, {name='loss', type='mse', inputs=['fc', "
         "'t']}]";
}

TEST(FrozenRun, TakesTheRunsPolicyUnlessItHasOneOfItsOwn) {
  const Folder folder;
  train_teacher(folder);
  const auto hash = [&](const char* precision, const char* own, const char* run) {
    return whole_run(precision, {linear_student(folder, own), kSgd}, folder, run).weights_hash;
  };
  const char* const fp8 = "[precision]\ntype = 'fp8'\nkeep_first = 0\nkeep_last = 0\n";
  const char* const low = ", precision={type='fp8', keep_first=0, keep_last=0}";
  const std::string plain = hash("", "", "plain");
  EXPECT_EQ(hash("[precision]\ntype = 'fp32'\n", "", "named"), plain);
  EXPECT_NE(hash("", low, "own"), plain);
  const std::string quantized = hash(fp8, "", "run");
  EXPECT_EQ(hash(fp8, low, "both"), quantized);
  EXPECT_NE(hash(fp8, ", precision={type='fp32'}", "kept"), quantized);
}

TEST(FrozenRun, TheModelMustBeThere) {
  const Folder folder;
  std::string error = "no error";
  try {
    error = run_of("", {student(folder), kSgd}, folder, "run").error;
  } catch (const Error& caught) {
    error = caught.what();
  }
  EXPECT_THAT(error, HasSubstr("/teacher"));
}

}  // namespace
}  // namespace rehearsal
