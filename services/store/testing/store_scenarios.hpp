// Saves that tests of the store interrupt: a history, one more save, and what loading may find when that save
// did not end.
#pragma once

#include <tenon/checkpoint.hpp>

#include "store/testing/faulty_files.hpp"
#include "store/testing/store_fixture.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <utility>

namespace tenon::testing {

/// A generation as it must be read.
struct Outcome {
  std::int64_t step;
  TinyModel model;

  bool is_found(CheckpointStore& store, std::int64_t found) const {
    if (found != step) return false;
    CheckpointReader reader = store.open(step);
    return TinyModel(model).equals(reader);
  }
};

struct Scenario {
  const char* name;
  std::function<void(CheckpointStore&)> before;
  std::function<SaveResult(CheckpointStore&)> save;
  std::optional<Outcome> older;  ///< what loading falls back on
  Outcome newer;
  std::size_t generations;  ///< that exist at any moment
};

/// Saves `model`, which need not be that of `step`.
inline SaveResult save_model(CheckpointStore& store, std::int64_t step, int world, TinyModel model) {
  SaveRequest request;
  request.step = step;
  return save_as_world(store, model, request, world);
}

/// An increment of one tensor.
inline SaveResult save_bias(CheckpointStore& store, std::int64_t step, std::int64_t base) {
  TinyModel model(step);
  const SaveItem item{"bias", model.view("bias"), Shape{5}, Shape{0}};
  SaveRequest request;
  request.step = step;
  request.base = base;
  request.items = {&item, 1};
  return store.commit(step, std::vector<std::string>{store.write_part(request, 0, 1)});
}

inline TinyModel model_with_bias_of(std::int64_t step, TinyModel model) {
  model.bytes("bias") = TinyModel(step).bytes("bias");
  return model;
}

inline std::vector<Scenario> scenarios() {
  const auto save_all = [](CheckpointStore& store, std::initializer_list<std::int64_t> steps) {
    for (const std::int64_t step : steps) save_step(store, step, 1);
  };
  const auto of = [](std::int64_t step) { return Outcome{step, TinyModel(step)}; };
  std::vector<Scenario> all;
  all.push_back({"first save", [](CheckpointStore&) {},
                 [](CheckpointStore& s) { return save_step(s, 10, 1); }, std::nullopt, of(10), 0});
  all.push_back({"second save by two ranks", [](CheckpointStore& s) { save_step(s, 10, 2); },
                 [](CheckpointStore& s) { return save_step(s, 20, 2); }, of(10), of(20), 1});
  all.push_back({"third save removes the first",
                 [=](CheckpointStore& s) {
                   save_all(s, {10, 20});
                 },
                 [](CheckpointStore& s) { return save_step(s, 30, 2); }, of(20), of(30), 2});
  all.push_back({"the same step again, with other content",
                 [=](CheckpointStore& s) {
                   save_all(s, {10, 20});
                 },
                 [](CheckpointStore& s) { return save_model(s, 20, 2, TinyModel(21)); }, of(20),
                 Outcome{20, TinyModel(21)}, 2});
  all.push_back({"an increment", [=](CheckpointStore& s) { save_all(s, {10}); },
                 [](CheckpointStore& s) { return save_bias(s, 20, 10); }, of(10),
                 Outcome{20, model_with_bias_of(20, TinyModel(10))}, 1});
  all.push_back({"a save that removes an increment and its base",
                 [=](CheckpointStore& s) {
                   save_all(s, {10});
                   save_bias(s, 20, 10);
                   save_all(s, {30});
                 },
                 [](CheckpointStore& s) { return save_step(s, 40, 2); }, of(30), of(40), 2});
  return all;
}

/// Operations of the save when nothing fails, one entry per operation of the file layer.
inline std::vector<std::string> operations_of(const Scenario& scenario) {
  MemoryFiles memory;
  FaultyFiles files(memory);
  CheckpointStore store(files, kFolder, {});
  scenario.before(store);
  files.arm({});
  EXPECT_EQ(scenario.save(store).status, SaveStatus::kCommitted);
  return files.trace();
}

/// Recovery rejects nothing and finds the older or the newer generation whole, and which of them: -1, where
/// nothing had been committed, counts as the older. Anything else fails the test.
enum class Found { kOlder, kNewer, kNeither };

inline Found recover_one_of(CheckpointStore& store, const Scenario& scenario) {
  const RestorePoint point = store.recover(false);
  for (const RejectedGeneration& rejected : point.rejected) {
    ADD_FAILURE() << "a failure must not leave a damaged generation: " << rejected.reason;
  }
  if (point.step >= 0 && scenario.newer.is_found(store, point.step)) return Found::kNewer;
  const bool older =
      scenario.older ? point.step >= 0 && scenario.older->is_found(store, point.step) : point.step < 0;
  if (older) return Found::kOlder;
  ADD_FAILURE() << "found step " << point.step << ", neither as before the save nor as after it";
  return Found::kNeither;
}

}  // namespace tenon::testing
