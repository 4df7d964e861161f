// The loop of a worker process. The folder's manifest gives its instructions, so that it does what the
// program that started it recorded there.
#include "simulate/worker.hpp"

#include "base/elapsed.hpp"
#include "loop/named_component.hpp"
#include "offline_host.hpp"
#include "simulate/messages.hpp"
#include "simulate/plan.hpp"
#include "simulate/sample_writer.hpp"

#include <tenon/error.hpp>
#include <tenon/runtime.hpp>
#include <tenon/sdk/npy.hpp>
#include <tenon/sdk/simulation.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

namespace tenon::simulate {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kServe = "--serve";

void say(const Answer& answer) {
  const std::string line = answer_line(answer);
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t now = ::write(kAnswerDescriptor, line.data() + done, line.size() - done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0)
      fail_run(fmt::format("cannot answer the program that started this worker: {}", std::strerror(errno)));
    done += now;
  }
}

/// Blocks; returns false if the other side closed.
bool read_line(Lines& lines, std::string& line) {
  while (!lines.next(line)) {
    char block[4096];
    const ssize_t got = ::read(kAnswerDescriptor, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    lines.add({block, static_cast<std::size_t>(got)});
  }
  return true;
}

class Watch final : public TaskWatch {
 public:
  explicit Watch(double limit_s) : limit_s_(limit_s), begun_(Clock::now()), said_(begun_) {}

  void step(std::int64_t done, std::int64_t total) override {
    const Clock::time_point now = Clock::now();
    if (base::seconds(now - begun_) > limit_s_)
      throw DeadlineError(
          fmt::format("not done within task_timeout_s = {} s: at step {} of {}", limit_s_, done, total));
    if (now - said_ < std::chrono::milliseconds(500)) return;
    said_ = now;
    say({.kind = Answer::Kind::kStep, .done = done, .total = total});
  }

 private:
  double limit_s_;
  Clock::time_point begun_, said_;
};

/// NaN and infinity must never become training data.
void check_finite(std::span<const SimulatedField> fields, std::span<const TensorView> arrays) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::int64_t element = 0;
    for_each_real(arrays[i], [&](double value) {
      if (!std::isfinite(value))
        fail_run(fmt::format("the result has {} in {}, element {}; the simulator did not notice", value,
                             fields[i].name, element));
      ++element;
    });
  }
}

class Worker {
 public:
  explicit Worker(const WorkerSpec& spec)
      : spec_(spec), files_(make_posix_files()), manifest_(read_simulation(*files_, spec.folder)) {
    runtime_.discover(spec.plugin_paths);
    Registry& registry = runtime_.registry();
    options_ = simulator_options(manifest_.config, registry);
    registry.create_inner(*options_.options, host_);
    simulator_ = registry.create<Simulator>(options_.type, *options_.options, host_);
    shared_.emplace(manifest_.shared);
    outputs_.emplace(manifest_.fields);
    read_simulation_arrays(*files_, simulation_shared_folder(spec.folder), manifest_.shared,
                           shared_->views());
  }

  Answer obey(const Order& order) {
    const auto failed = [](const char* kind, const std::exception& error) {
      return Answer{.kind = Answer::Kind::kFailed, .failure = kind, .text = error.what()};
    };
    try {
      Watch watch(spec_.task_timeout_s);
      if (order.fate == Fate::kHang) hang(watch);
      try {
        simulator_->run({manifest_.seed, order.index}, shared_->views(), outputs_->views(), watch);
      } catch (const DeadlineError&) {
        throw;  // of the watch
      } catch (...) {
        rethrow_noted_call();
      }
      check_finite(manifest_.fields, outputs_->views());
    } catch (const DeadlineError& error) {
      return failed("time", error);
    } catch (const std::exception& error) {
      return failed("error", error);
    }
    try {
      const std::string path = simulation_sample_folder(spec_.folder, order.index);
      if (order.fate == Fate::kCrash) crash(path);
      write_arrays(*files_, path, manifest_.fields, outputs_->views());
    } catch (const std::exception& error) {
      return failed("files", error);
    }
    return {.kind = Answer::Kind::kDone, .digest = simulation_digest(outputs_->views())};
  }

 private:
  /// Waits until the watch says that the time is over.
  [[noreturn]] static void hang(Watch& watch) {
    for (;;) {
      watch.step(0, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  /// Dies in the middle of writing.
  [[noreturn]] void crash(const std::string& path) const {
    files_->make_directories(partial_path(path));
    write_npy(*files_, simulation_array_path(partial_path(path), manifest_.fields[0]), outputs_->views()[0]);
    ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }

  WorkerSpec spec_;
  std::unique_ptr<FileSystem> files_;
  SimulationManifest manifest_;
  Runtime runtime_;
  cli::OfflineHost host_;
  SimulatorOptions options_;
  train::NamedComponent<Simulator> simulator_;
  std::optional<ArrayMemory> shared_, outputs_;
};

}  // namespace

std::vector<std::string> worker_arguments(const WorkerSpec& spec) {
  std::vector<std::string> arguments{"simulate", std::string(kServe), spec.folder,
                                     fmt::format("{:.17g}", spec.task_timeout_s)};
  arguments.insert(arguments.end(), spec.plugin_paths.begin(), spec.plugin_paths.end());
  return arguments;
}

bool is_worker(const std::vector<std::string>& arguments) {
  return arguments.size() >= 3 && arguments[0] == kServe;
}

int serve(const std::vector<std::string>& arguments) {
  // It writes into a folder that another process may lock as soon as its parent is gone.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  WorkerSpec spec;
  spec.folder = arguments[1];
  std::from_chars(arguments[2].data(), arguments[2].data() + arguments[2].size(), spec.task_timeout_s);
  spec.plugin_paths.assign(arguments.begin() + 3, arguments.end());
  Worker worker(spec);
  say({.kind = Answer::Kind::kReady});
  Lines lines;
  for (std::string line; read_line(lines, line);) say(worker.obey(parse_order(line)));
  return 0;
}

}  // namespace tenon::simulate
