// Checks of contract simulator/1: samples are functions of their index, complete, and stopped in time.
#include "subject.hpp"

#include <tenon/error.hpp>
#include <tenon/simulator.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace tenon::conformance {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::byte kOne{0x5A}, kOther{0xA5};

class Counter final : public TaskWatch {
 public:
  explicit Counter(bool ends) : ends_(ends) {}
  void step(std::int64_t, std::int64_t) override {
    ++calls;
    if (ends_) throw DeadlineError("the task's time is over");
  }
  std::int64_t calls = 0;

 private:
  bool ends_;
};

/// Arrays between guards, filled with `pattern`.
class Arrays {
 public:
  Arrays(std::span<const SimulatedField> fields, std::byte pattern) : pattern_(pattern) {
    for (const SimulatedField& field : fields) {
      TensorView view{nullptr, field.shape, field.dtype};
      memory_.emplace_back(static_cast<std::size_t>(view.bytes()) + 2 * kGuard, pattern);
      view.data = memory_.back().data() + kGuard;
      views_.push_back(view);
    }
  }
  Arrays(const Arrays&) = delete;

  std::span<const TensorView> views() const { return views_; }
  std::vector<Bytes> bytes() const {
    std::vector<Bytes> all;
    for (const TensorView& view : views_) all.emplace_back(view.raw().begin(), view.raw().end());
    return all;
  }
  bool stayed_inside() const {
    const auto untouched = [&](std::byte byte) { return byte == pattern_; };
    return std::all_of(memory_.begin(), memory_.end(), [&](const Bytes& bytes) {
      return std::all_of(bytes.begin(), bytes.begin() + kGuard, untouched) &&
             std::all_of(bytes.end() - kGuard, bytes.end(), untouched);
    });
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 64;
  std::byte pattern_;
  std::vector<Bytes> memory_;
  std::vector<TensorView> views_;
};

std::string described(std::span<const SimulatedField> fields) {
  std::vector<std::string> texts;
  for (const SimulatedField& field : fields)
    texts.push_back(fmt::format("{} {} {} {}", field.target ? "target" : "input", field.name,
                                dtype_name(field.dtype), field.shape.text()));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// A sample, or the text of the simulator's own error.
struct Outcome {
  std::vector<Bytes> bytes;
  std::string error;
  std::int64_t calls = 0;
  bool operator==(const Outcome& other) const { return bytes == other.bytes && error == other.error; }
};

Outcome run(Simulator& simulator, const SimulationTask& task, std::byte pattern) {
  const Arrays shared(simulator.shared(), pattern), fields(simulator.fields(), pattern);
  simulator.share(task.seed, shared.views());
  Counter watch(false);
  Outcome outcome;
  try {
    simulator.run(task, shared.views(), fields.views(), watch);
  } catch (const Error& error) {
    outcome.error = error.what();
    if (error.kind() != ErrorKind::kRun)
      fail(fmt::format(
          "task {}: expected fail_run where there is no such sample, found another kind of error: {}",
          task.index, outcome.error));
  }
  if (!shared.stayed_inside() || !fields.stayed_inside())
    fail(fmt::format("task {} wrote outside of the memory of its arrays", task.index));
  if (outcome.error.empty()) outcome.bytes = fields.bytes();
  outcome.calls = watch.calls;
  return outcome;
}

void describes_itself(Subject& subject) {
  const testing::Made<Simulator> made = subject.make<Simulator>(), again = subject.make<Simulator>();
  if (made->fields().empty()) fail("fields() names no field");
  std::set<std::string> names;
  for (const auto& list : {made->fields(), made->shared()}) {
    names.clear();
    for (const SimulatedField& field : list) {
      const bool plain = !field.name.empty() && std::all_of(field.name.begin(), field.name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
      });
      if (!plain || !names.insert(field.name).second)
        fail(
            fmt::format("field '{}': a name is lower case, digits and '_', and not given twice", field.name));
      if (field.shape.rank() < 1 || field.shape.elements() < 1)
        fail(fmt::format("field '{}': expected at least one dimension and one element, found {}", field.name,
                         field.shape.text()));
      const DType types[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8};
      if (std::find(std::begin(types), std::end(types), field.dtype) == std::end(types))
        fail(fmt::format("field '{}': expected f32, f64, i32, i64 or u8, found {}", field.name,
                         dtype_name(field.dtype)));
    }
  }
  const std::string before = described(made->fields()) + described(made->shared());
  const SimulationTask task{subject.seed(), 0};
  run(*made, task, kOne);
  for (Simulator* simulator : {&*made, &*again}) {
    const std::string after = described(simulator->fields()) + described(simulator->shared());
    if (after != before) fail(fmt::format("the description was {} and is {}", before, after));
  }
}

void tasks_are_pure(Subject& subject) {
  const testing::Made<Simulator> made = subject.make<Simulator>(), again = subject.make<Simulator>();
  std::vector<Outcome> expected;
  for (std::int64_t index = 0; index < 3; ++index)
    expected.push_back(run(*made, {subject.seed(), index}, kOne));
  for (std::int64_t index = 2; index >= 0; --index) {
    if (!(run(*made, {subject.seed(), index}, kOne) == expected[index]))
      fail(fmt::format("task {} is other bytes when it is done again, after others", index));
    if (!(run(*again, {subject.seed(), index}, kOther) == expected[index])) {
      fail(fmt::format(
          "task {} is other bytes in a second object, in memory that held something else: a sample "
          "depends on options, seed and index alone, and is written whole",
          index));
    }
  }
}

void samples_are_finite(Subject& subject) {
  const testing::Made<Simulator> made = subject.make<Simulator>();
  for (std::int64_t index = 0; index < 3; ++index) {
    const Arrays shared(made->shared(), kOne), fields(made->fields(), kOne);
    made->share(subject.seed(), shared.views());
    Counter watch(false);
    try {
      made->run({subject.seed(), index}, shared.views(), fields.views(), watch);
    } catch (const Error&) {
      continue;  // a hole
    }
    for (std::size_t i = 0; i < fields.views().size(); ++i) {
      for_each_real(fields.views()[i], [&](double value) {
        if (!std::isfinite(value))
          fail(fmt::format("task {}: field {} holds {}; throw by fail_run when there is no such sample",
                           index, made->fields()[i].name, value));
      });
    }
  }
}

void stops_in_time(Subject& subject) {
  const testing::Made<Simulator> made = subject.make<Simulator>();
  const Arrays shared(made->shared(), kOne), fields(made->fields(), kOne);
  made->share(subject.seed(), shared.views());
  Counter watch(true);
  try {
    made->run({subject.seed(), 0}, shared.views(), fields.views(), watch);
  } catch (const DeadlineError&) {
    return;
  } catch (const Error& error) {
    if (watch.calls > 0) fail(fmt::format("the watch's DeadlineError did not pass: {}", error.what()));
    not_applicable(fmt::format("the task fails before it looks at its watch: {}", error.what()));
  }
  fail(watch.calls == 0 ? "run() never calls watch.step(); a task that takes too long could only be killed"
                        : "run() went on after watch.step() said that its time is over");
}

constexpr const char* kSimulatorKind = Simulator::kKind;
constexpr Check kSimulatorChecks[] = {
    {"simulator.describes_itself", kSimulatorKind,
     "fields are sound, and the same for equal options and after tasks", describes_itself, 60},
    {"simulator.tasks_are_pure", kSimulatorKind,
     "a task gives the same bytes in any order, object and memory, and no more", tasks_are_pure, 120},
    {"simulator.samples_are_finite", kSimulatorKind, "a sample without a number is an error and no sample",
     samples_are_finite, 60},
    {"simulator.stops_in_time", kSimulatorKind, "a task looks at its watch and ends when that says so",
     stops_in_time, 60},
};

}  // namespace

std::span<const Check> simulator_checks() {
  return kSimulatorChecks;
}

}  // namespace tenon::conformance
