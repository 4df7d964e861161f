// The costs of plugins: inspecting a file, one more file on the search path, a guarded call, a phase. Each
// has a limit; the program ends with 1 when one is missed.
#include "step_bench.hpp"

#include "loop/parts.hpp"
#include "loop/time_account.hpp"

#include <tenon/clock.hpp>
#include <tenon/registry.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <fstream>

extern char** environ;

namespace tenon::bench {
namespace {

namespace fs = std::filesystem;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Milliseconds from starting the program until it has ended; its output is discarded.
double program_ms(std::vector<std::string> words) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const double begin = now_ms();
  pid_t child = 0;
  int status = -1;
  if (::posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ) == 0)
    ::waitpid(child, &status, 0);
  const double end = now_ms();
  ::posix_spawn_file_actions_destroy(&actions);
  if (status != 0) fail_run(fmt::format("'{} {}' ended with {}", words[0], words[1], status));
  return end - begin;
}

/// `count` copies of a plugin of the id `id`, each under an id of its own of the same length.
void make_copies(const fs::path& plugin, const std::string& id, const fs::path& folder, int count) {
  std::ifstream in(plugin, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  fs::create_directories(folder);
  for (int copy = 0; copy < count; ++copy) {
    const std::string number = fmt::format("c{:03}", copy);
    std::string bytes = whole;
    for (std::size_t at = bytes.find(id); at != std::string::npos; at = bytes.find(id, at + 1))
      bytes.replace(at, number.size(), number);
    std::ofstream(folder / (number + ".so"), std::ios::binary) << bytes;
  }
}

struct Line {
  const char* what;
  double limit;
  const char* unit;
  std::vector<double> values;
};

/// Nanoseconds per call of `call`, over many.
template <typename Call>
double call_ns(Call call) {
  constexpr int kCalls = 2'000'000;
  double sum = 0;
  const double begin = now_ms();
  for (int i = 0; i < kCalls; ++i) sum += call(i);
  const double ns = (now_ms() - begin) * 1e6 / kCalls;
  if (sum < 0) fmt::print("\n");  // so that the sum is needed
  return ns;
}

/// Hears phases, as an actuator does.
class Listener final : public PhaseObserver {
 public:
  void on_phase(Phase phase, double) override { heard_.store(phase, std::memory_order_relaxed); }

 private:
  std::atomic<Phase> heard_{Phase::kIdle};
};

int measure(const Settings& settings) {
  const fs::path build = fs::canonical("/proc/self/exe").parent_path().parent_path();
  const std::string program = (build / "bin/tenon").string();
  const fs::path plugin = build / "lib/tenon/plugins/tenon_schedule_basic.so";
  const fs::path scratch = fs::temp_directory_path() / fmt::format("tenon-bench-{}", ::getpid());

  Registry registry;
  registry.discover_only({plugin.string()});
  const std::string id = registry.plugins().at(0).id;
  constexpr int kExtra = 100;
  make_copies(plugin, id, scratch / "one", 1);
  make_copies(plugin, id, scratch / "many", 1 + kExtra);

  const auto clock = make_wall_clock();
  train::PauseGate gate(*clock, 1);
  train::RankHost host(train::HostSpec{0, 1, 0, 1.0, clock.get(), nullptr, nullptr}, gate);
  const Config defaults = Config::parse("", "bench.toml", std::vector<std::string>{});
  auto request = component_request(defaults.root(), registry.describe("schedule/1", "constant"), &registry);
  const auto options = resolve_options(request).options;
  train::Part<Schedule> part(options.get(), registry.create<Schedule>("constant", *options, host), nullptr,
                             host);
  Schedule* const plain = part.get();

  Line lines[] = {{"tenon inspect FILE --no-load", 20, "ms", {}},
                  {"tenon inspect FILE, loaded in a child", 20, "ms", {}},
                  {"one more plugin on the search path", 1, "ms", {}},
                  {"loading one more plugin", 1, "ms", {}},
                  {"guarded call over a virtual call", 20, "ns", {}},
                  {"a change of phase, no listener", 100, "ns", {}},
                  {"a change of phase, one listener", 200, "ns", {}}};
  for (int round = 0; round < settings.rounds; ++round) {
    lines[0].values.push_back(program_ms({program, "inspect", plugin.string(), "--no-load"}));
    lines[1].values.push_back(program_ms({program, "inspect", plugin.string()}));

    ::setenv("TENON_PLUGIN_PATH", (scratch / "one").c_str(), 1);
    const double one = program_ms({program, "inspect", "optimizer.sgd"});
    ::setenv("TENON_PLUGIN_PATH", (scratch / "many").c_str(), 1);
    lines[2].values.push_back((program_ms({program, "inspect", "optimizer.sgd"}) - one) / kExtra);

    const std::string copies = (scratch / fmt::format("round{}", round)).string();
    make_copies(plugin, id, copies, kExtra);
    Registry many;
    many.discover_only({copies});
    const double begin = now_ms();
    for (int copy = 0; copy < kExtra; ++copy) many.find("schedule/1", fmt::format("c{:03}n/constant", copy));
    lines[3].values.push_back((now_ms() - begin) / kExtra);

    const auto point = [](int i) { return SchedulePoint{i, 1000, 0.1}; };
    const double direct = call_ns([&](int i) { return plain->rate(point(i)); });
    lines[4].values.push_back(call_ns([&](int i) { return part->rate(point(i)); }) - direct);

    train::TimeAccount account(*clock);
    account.start();
    const auto change = [&](int i) {
      return static_cast<double>(account.enter(i % 2 == 0 ? Phase::kForward : Phase::kBackward));
    };
    lines[5].values.push_back(call_ns(change));
    Listener listener;
    account.listen(listener);
    lines[6].values.push_back(call_ns(change));
  }
  fs::remove_all(scratch);

  bool kept = true;
  for (const Line& line : lines) {
    const bool good = median(line.values) < line.limit;
    kept = kept && good;
    fmt::print("{:<40} {} {}, limit {}{}\n", line.what, spread(line.values), line.unit, line.limit,
               good ? "" : ": MISSED");
  }
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  tenon::bench::Settings settings;
  settings.rounds = 15;
  return tenon::bench::run_program("plugin_calls", argc, argv, settings, tenon::bench::measure);
}
