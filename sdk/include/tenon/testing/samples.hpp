// For tests of simulators: a component made from TOML without a registry, and the arrays of one task. Header
// only; needs GoogleTest.
#pragma once

#include <tenon/config.hpp>
#include <tenon/simulator.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::testing {

/// A simulator and the options that it keeps views of.
template <typename Solver>
struct MadeSimulator {
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<Solver> simulator;
  Solver* operator->() const { return simulator.get(); }
};

template <typename Solver>
MadeSimulator<Solver> make_simulator(const std::string& toml) {
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  MadeSimulator<Solver> made;
  made.options = resolve_options(OptionRequest{.table = config.root(),
                                               .owner = "simulator." + std::string(Solver::kInfo.id),
                                               .specs = option_list(Solver::kOptions)})
                     .options;
  made.simulator = std::make_unique<Solver>(*made.options);
  return made;
}

/// Counts the calls; ends the task at call `limit`.
class CountingWatch final : public TaskWatch {
 public:
  explicit CountingWatch(std::int64_t limit = -1) : limit_(limit) {}
  void step(std::int64_t, std::int64_t) override {
    if (++calls == limit_) throw DeadlineError("the task's time is over");
  }
  std::int64_t calls = 0;

 private:
  std::int64_t limit_;
};

/// Arrays, filled with a value that no test expects.
class Arrays {
 public:
  explicit Arrays(std::span<const SimulatedField> fields) : fields_(fields.begin(), fields.end()) {
    for (const SimulatedField& field : fields_) {
      memory_.emplace_back(static_cast<std::size_t>(dtype_bytes(field.dtype, field.shape.elements())),
                           std::byte{0x5A});
      views.push_back({memory_.back().data(), field.shape, field.dtype});
    }
  }
  Arrays(const Arrays&) = delete;

  template <typename T>
  std::vector<T> values(std::string_view name) const {
    const auto found = std::find_if(fields_.begin(), fields_.end(),
                                    [&](const SimulatedField& field) { return field.name == name; });
    EXPECT_NE(found, fields_.end()) << name;
    const std::size_t index = found - fields_.begin();
    const auto all = views.at(index).span<T>();
    return {all.begin(), all.end()};
  }

  std::vector<TensorView> views;

 private:
  std::vector<SimulatedField> fields_;
  std::vector<std::vector<std::byte>> memory_;
};

/// The arrays of one task, and the shared ones before them.
class Sample : public Arrays {
 public:
  Sample(Simulator& simulator, const SimulationTask& task) : Arrays(simulator.fields()) {
    Arrays shared(simulator.shared());
    simulator.share(task.seed, shared.views);
    CountingWatch watch;
    simulator.run(task, shared.views, views, watch);
  }
};

}  // namespace tenon::testing
