// The cost of background exchanges: processor time of the shadow threads against that of everything else in
// the process, at the resulting average sync gap. Usage: shadow_cost [--rounds N] [--steps N]
#include "gpt_shape.hpp"

#include <tenon/config.hpp>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <thread>

namespace {

using namespace tenon;
using bench::Settings;
namespace fs = std::filesystem;

/// Follows the processor seconds of this process's threads called `name`, while it lives.
class ThreadTimes {
 public:
  explicit ThreadTimes(std::string name) : name_(std::move(name)), thread_([this] { follow(); }) {}
  double stop() {
    stopping_ = true;
    thread_.join();
    double sum = 0;
    for (const auto& [id, nanoseconds] : nanoseconds_) sum += 1e-9 * nanoseconds;
    return sum;
  }

 private:
  void follow() {
    while (!stopping_) {
      std::error_code gone;
      for (const auto& task : fs::directory_iterator("/proc/self/task", gone)) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        double nanoseconds = 0;
        if (name == name_ && std::ifstream(task.path() / "schedstat") >> nanoseconds)
          nanoseconds_[task.path().filename()] = nanoseconds;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const std::string name_;
  std::map<std::string, double> nanoseconds_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

double process_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Cost {
  double percent = 0, gap = 0;
};

Cost measure(const std::string& config) {
  Runtime runtime;
  runtime.discover({});
  TrainRequest request;
  request.run_dir = (fs::temp_directory_path() / fmt::format("tenon-bench-{}", ::getpid())).string();
  request.quiet = true;
  const double before = process_seconds();
  ThreadTimes shadows("shadow");
  const RunResult result = runtime.train(Config::parse(config, "bench.toml", {}), request);
  const double background = shadows.stop();
  fs::remove_all(request.run_dir);
  if (!result.error.empty()) fail_run(result.error);
  const double training = process_seconds() - before - background;
  return {100 * background / training, result.distributions.at("sync_gap").mean};
}

int run(const Settings& settings) {
  const bench::GptShape shape = bench::study_shape();
  Settings one = settings;
  one.threads = 1;
  std::string base = bench::config_text(shape, "type = \"fp32\"", one);
  base.replace(base.find("\"adamw\""), 7, "\"sgd\"\nlr = 0.05");
  for (const char* strategy : {"shadow_easgd", "shadow_ma", "shadow_bmuf"}) {
    const bool server = std::string(strategy) == "shadow_easgd";
    std::vector<double> percents, gaps;
    for (int round = 0; round < settings.rounds; ++round) {
      const Cost cost = measure(base + fmt::format("[parallel]\nranks = 2\nservers = {}\n[transport]\ntype = "
                                                   "\"thread\"\n[sync]\ntype = \"{}\"\nrest = 3.0\n",
                                                   server ? 1 : 0, strategy));
      percents.push_back(cost.percent);
      gaps.push_back(cost.gap);
    }
    fmt::print(
        "{}: two trainers, a mean sync gap of {} slots: the shadow threads take {} % of the processor time "
        "of the rest\n",
        strategy, bench::spread(gaps), bench::spread(percents));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  settings.rounds = 3;
  settings.steps = 400;
  return bench::run_program("shadow_cost", argc, argv, settings, run);
}
