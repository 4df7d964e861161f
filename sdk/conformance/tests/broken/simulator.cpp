// Simulators that are wrong in one way each.
#include <tenon/plugin.hpp>
#include <tenon/random.hpp>
#include <tenon/simulator.hpp>

#include <cmath>
#include <vector>

namespace {

using namespace tenon;

/// x: four normal numbers.
class Base : public SimulatorBase {
 public:
  explicit Base(const Options&) {}
  std::span<const SimulatedField> fields() const override { return fields_; }
  void run(const SimulationTask& task, std::span<const TensorView>, std::span<const TensorView> fields,
           TaskWatch& watch) override {
    watch.step(0, 1);
    fill(task, fields);
  }

 protected:
  static void fill(const SimulationTask& task, std::span<const TensorView> fields) {
    const RandomKey key = random_key(task.seed, "broken");
    for (std::size_t i = 0; i < 4; ++i)
      fields[0].as<float>()[i] =
          static_cast<float>(random_normal(key, static_cast<std::uint64_t>(task.index), i));
  }
  std::vector<SimulatedField> fields_{{"x", DType::kF32, Shape{4}, false}};
};

class NamesAPath final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "names_a_path",
                                       .summary = "a field that would leave its folder"};
  explicit NamesAPath(const Options& options) : Base(options) { fields_[0].name = "../x"; }
};

class CountsTasks final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_tasks", .summary = "a task depends on those before"};
  using Base::Base;
  void run(const SimulationTask& task, std::span<const TensorView>, std::span<const TensorView> fields,
           TaskWatch& watch) override {
    watch.step(0, 1);
    fill({task.seed, task.index + count_++}, fields);
  }

 private:
  std::int64_t count_ = 0;
};

class LeavesAGap final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "leaves_a_gap", .summary = "an element is not written"};
  explicit LeavesAGap(const Options& options) : Base(options) { fields_[0].shape = Shape{5}; }
};

class DividesByZero final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "divides_by_zero", .summary = "not finite"};
  using Base::Base;
  void run(const SimulationTask& task, std::span<const TensorView> shared, std::span<const TensorView> fields,
           TaskWatch& watch) override {
    Base::run(task, shared, fields, watch);
    fields[0].as<float>()[2] = std::nanf("");
  }
};

class HasNoTime final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "has_no_time", .summary = "never looks at its watch"};
  using Base::Base;
  void run(const SimulationTask& task, std::span<const TensorView>, std::span<const TensorView> fields,
           TaskWatch&) override {
    fill(task, fields);
  }
};

class GoesOn final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "goes_on", .summary = "hears the watch and goes on"};
  using Base::Base;
  void run(const SimulationTask& task, std::span<const TensorView>, std::span<const TensorView> fields,
           TaskWatch& watch) override {
    try {
      watch.step(0, 1);
    } catch (const Error&) {
    }
    fill(task, fields);
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.simulator", .version = "1.0.0", .summary = "wrong simulators"},
             NamesAPath, CountsTasks, LeavesAGap, DividesByZero, HasNoTime, GoesOn)
