// Observer `held` makes a run wait between its slots until a file appears, so that a test decides when it
// goes on. It changes no bit of the run.
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

namespace {

using namespace tenon;

class Held final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {option::text("until", "'go'"), option::real("seconds", "0.2")};
  static constexpr ComponentInfo kInfo{.id = "held", .summary = "waits between slots", .options = kOptions};
  explicit Held(const Options& options) : until_(options.text("until")), seconds_(options.real("seconds")) {}

  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord&) override {
    std::error_code unknown;
    if (!std::filesystem::exists(until_, unknown))
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  const std::string until_;
  const double seconds_;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "test.held", .version = "0.1.0", .summary = "an observer that holds a run"},
             Held);
