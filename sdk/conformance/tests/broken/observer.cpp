// Observers that break one promise each.
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <cfenv>
#include <fstream>
#include <memory>
#include <string>

namespace {

using namespace tenon;

class Silent : public Observer {
 public:
  explicit Silent(const Options&) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord&) override {}
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view) override { return nullptr; }
};

/// Clips the weights that it is given.
class MendsWeights final : public Silent, public TensorObserver {
 public:
  static constexpr ComponentInfo kInfo{.id = "mends_weights", .summary = "writes to what it is shown"};
  using Silent::Silent;
  TensorRequest tensors(std::int64_t slot) override { return {.parameters = slot == 2}; }
  void on_output(const ObservedOutput&) override {}
  void on_parameters(std::span<const ObservedParameter> parameters) override {
    parameters[0].after.as<float>()[0] *= 0.5F;
  }
  void* query(std::string_view id) override {
    return id == TensorObserver::kId ? static_cast<TensorObserver*>(this) : nullptr;
  }
};

class RoundsDown final : public Silent {
 public:
  static constexpr ComponentInfo kInfo{.id = "rounds_down", .summary = "changes the processor's state"};
  using Silent::Silent;
  void on_slot(const SlotRecord&) override { std::fesetround(FE_DOWNWARD); }
};

class WritesHere final : public Silent {
 public:
  static constexpr ComponentInfo kInfo{.id = "writes_here", .summary = "a file in the working folder"};
  using Silent::Silent;
  void on_slot(const SlotRecord& record) override { std::ofstream("losses.txt") << record.loss; }
};

class ThrowsAtTheEnd final : public Silent {
 public:
  static constexpr ComponentInfo kInfo{.id = "throws_at_the_end", .summary = "expects a completed run"};
  using Silent::Silent;
  void on_finish(std::string_view status, std::string_view) override {
    if (status == "failed") fail_run("there is no last loss");
  }
};

class StopsEarly final : public Silent {
 public:
  static constexpr ComponentInfo kInfo{.id = "divides_by_slots", .summary = "throws when a run is cut short"};
  using Silent::Silent;
  void on_start(const RunInfo& info) override { left_ = info.steps; }
  void on_slot(const SlotRecord&) override { --left_; }
  void on_finish(std::string_view status, std::string_view) override {
    if (status == "interrupted" && left_ > 0) fail_run("slots are missing");
  }

 private:
  std::int64_t left_ = 0;
};

/// Fails if its file exists already.
class TakesTheFile final : public Silent {
 public:
  static constexpr ComponentInfo kInfo{.id = "takes_the_file", .summary = "one lock for all of its type"};
  using Silent::Silent;
  void on_start(const RunInfo& info) override {
    const std::string name = info.folder + "/observed.lock";
    if (std::ifstream(name).good()) fail_run("observed.lock is there already");
    std::ofstream(name) << info.rank;
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.observer", .version = "1.0.0", .summary = "wrong observers"},
             MendsWeights, RoundsDown, WritesHere, ThrowsAtTheEnd, StopsEarly, TakesTheFile)
