// The cost of counting row accesses: seconds in the trackers of recovery `cpr` against those of everything
// else in a DLRM's training slots, in one run per round. Usage: recovery_trackers [--rounds N] [--steps N]
// [--threads N]
#include "cpr.hpp"
#include "data_sets.hpp"
#include "step_bench.hpp"

#include <chrono>

namespace {

using namespace tenon;
using bench::Settings;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Times of the newest run.
struct Spent {
  double tracking = 0, all = 0, selecting = 0;
};
Spent spent;

/// A policy that saves nothing: it counts accesses as `cpr` does, and measures the time.
class Timed final : public RecoveryBase {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "timed", .summary = "trackers with a clock", .options = recovery_cpr::Cpr::kOptions};
  explicit Timed(const Options& options) : inner_(options) { spent = {}; }
  void bind(RecoveryHost& host) override { inner_.bind(host); }
  void on_accesses(int table, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override {
    const auto begin = Clock::now();
    inner_.on_accesses(table, ids, counts);
    if (begun_) spent.tracking += seconds_since(begin);
  }
  SavePlan plan_save(const SaveMoment& moment) override {
    // The first slots warm up.
    if (moment.slot == moment.steps / 4) {
      begun_ = true;
      since_ = Clock::now();
    }
    if (moment.slot != moment.steps) return {};
    spent.all = seconds_since(since_);
    SavePlan plan;
    plan.everything = false;
    const auto begin = Clock::now();
    inner_.select(moment, plan);
    spent.selecting = seconds_since(begin);
    return {};
  }
  int keep() const override { return 2; }

 private:
  recovery_cpr::Cpr inner_;
  bool begun_ = false;
  Clock::time_point since_;
};

TENON_STATIC_PLUGIN(parts, PluginInfo{.id = "bench.trackers", .version = "1.0.0", .summary = "clocks"},
                    bench::ReadyBatches, Timed)

std::string config_text(const std::string& tracker, const Settings& settings) {
  return fmt::format(R"([run]
name = "bench"
steps = {}
eval_batches = 1
[device]
type = "cpu"
threads = {}
[data]
type = "ready"
[data.inner]
type = "synthetic_ctr"
tables = 26
rows = [100000]
dense = 13
exponent = 1.2
batch = 2048
val_samples = 2048
[model]
type = "dlrm"
bottom = [512, 256, 64, 16]
top = [512, 256, 1]
[precision]
type = "fp32"
[optimizer]
type = "rowwise_adagrad"
lr = 0.02
[recovery]
type = "timed"
tracker = "{}"
partial = "always"
)",
                     settings.steps, settings.threads, tracker);
}

int run(const Settings& settings) {
  fmt::print("DLRM of 26 tables x 100,000 rows x 16, batch 2048, {} thread(s)\n", settings.threads);
  bool met = true;
  for (const auto& [tracker, limit] : {std::pair<const char*, double>{"mfu", 2}, {"ssu", 1}, {"scar", 1}}) {
    std::vector<double> shares, selecting;
    for (int round = 0; round < settings.rounds; ++round) {
      bench::train(config_text(tracker, settings), &parts);
      shares.push_back(100 * spent.tracking / (spent.all - spent.tracking));
      selecting.push_back(1e3 * spent.selecting);
    }
    met = met && bench::median(shares) < limit;
    fmt::print("{}: {} % of the rest of a slot (limit {:g}); choosing the rows of a save: {} ms\n", tracker,
               bench::spread(shares), limit, bench::spread(selecting));
    std::fflush(stdout);
  }
  return met ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("recovery_trackers", argc, argv, {.steps = 80}, run);
}
