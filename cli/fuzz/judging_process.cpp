#include "fuzz/judging_process.hpp"

#include "base/child_process.hpp"
#include "base/process_facts.hpp"
#include "config/run_schema.hpp"
#include "fuzz/bases.hpp"
#include "fuzz/space.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>

namespace tenon::fuzz {
namespace {

namespace fs = std::filesystem;
using Request = nlohmann::json;

constexpr int kTooMuchMemory = 77;

std::string request_text(const JudgingRequest& request) {
  return Request{
      {"seed", request.seed},           {"index", request.index},     {"file", request.file},
      {"base_file", request.base_file}, {"kinds", request.kinds},     {"identities", request.identities},
      {"folder", request.folder},       {"program", request.program}, {"memory_mb", request.memory_mb}}
      .dump();
}

JudgingRequest read_request(const std::string& file) {
  std::ifstream in(file);
  const Request json = Request::parse(in, nullptr, false);
  if (!json.is_object()) fail_config(fmt::format("tenon fuzz: {} is no request to judge", file));
  JudgingRequest request;
  request.seed = json.at("seed");
  request.index = json.at("index");
  request.file = json.at("file");
  request.base_file = json.at("base_file");
  request.kinds = json.at("kinds").get<std::vector<std::string>>();
  request.identities = json.at("identities").get<std::vector<std::string>>();
  request.folder = json.at("folder");
  request.program = json.at("program");
  request.memory_mb = json.at("memory_mb");
  return request;
}

/// Ends the process where its memory grows beyond bounds: what comes after would be the machine's.
class MemoryWatch {
 public:
  explicit MemoryWatch(double most_mb) : thread_([this, most_mb] { watch(most_mb); }) {}
  ~MemoryWatch() {
    stop_ = true;
    thread_.join();
  }
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

 private:
  void watch(double most_mb) const {
    while (!stop_) {
      if (anonymous_rss_mb() > most_mb) {
        std::cerr << fmt::format("more than {:.0f} MiB of memory\n", most_mb) << std::flush;
        ::_exit(kTooMuchMemory);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void write_case(const std::string& folder, const Value& root) {
  std::ofstream(folder + "/case.toml") << to_toml(root, false);
}

/// By the component's own word; one that asks the host for what only a run has is taken as it is.
bool can_be_made(Registry& registry, Host& host, std::string_view kind, const Value& table) {
  Value own = table;
  const std::size_t slash = kind.find('/');
  for (const std::string& key : config::core_keys(kind.substr(0, slash))) own.erase(key);
  try {
    const Resolution resolved =
        resolve_options(component_request(own, registry.describe(kind, own.find("type")->text()), &registry));
    registry.create_inner(*resolved.options, host);
    registry.create(kind, own.find("type")->text(), *resolved.options, host);
    return true;
  } catch (const Error& error) {
    return error.kind() != ErrorKind::kConfig;
  }
}

/// Judges in a folder of its own.
Verdict judge_root(Runtime& runtime, Host& host, const JudgingRequest& request, const Value& root,
                   const std::string& folder) {
  fs::create_directories(folder);
  write_case(request.folder, root);
  return Judge(runtime, host,
               {.root = root,
                .identities = request.identities.empty() ? identities_of(request.seed, request.index)
                                                         : request.identities,
                .seed = request.seed,
                .index = request.index,
                .folder = folder,
                .program = request.program})
      .run();
}

/// Rows in shared memory outlive their run, for a restart; those of a judgement name its folder.
void remove_shared_memory(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
    if (!entry.path().filename().string().starts_with("tenon.")) continue;
    std::string head(4096, '\0');
    std::ifstream(entry.path(), std::ios::binary)
        .read(head.data(), static_cast<std::streamsize>(head.size()));
    if (head.find(folder + "/") != std::string::npos) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

int judge_request(const std::string& file, Host& host) {
  const JudgingRequest request = read_request(file);
  const MemoryWatch watch(request.memory_mb);
  Runtime runtime;
  std::optional<Config> given;
  for (const std::string& path : {request.file, request.base_file})
    if (!path.empty() && !given) given = Config::load(path, {});
  runtime.discover(given ? config::plugin_paths(*given) : std::vector<std::string>{});
  Judged judged;
  judged.index = request.index;
  if (!request.file.empty()) {
    judged.base = "case";
    judged.verdict = judge_root(runtime, host, request, given->root(), request.folder + "/judged");
    judged.components = components_of(given->root(), runtime.registry());
  } else {
    SpaceRequest space{.seed = request.seed, .kinds = request.kinds, .base = {}};
    // A case names it, too, so it outlives this process.
    space.folder = (fs::temp_directory_path() / "tenon-fuzz").string();
    space.makes = [&](std::string_view kind, const Value& table) {
      return can_be_made(runtime.registry(), host, kind, table);
    };
    fs::create_directories(space.folder);
    write_sums(space.folder);
    if (given) space.base = base_of_run(given->root());
    const Space drawn(runtime.registry(), std::move(space));
    for (int attempt = 0; attempt < Space::kAttempts && !judged.verdict.accepted; ++attempt) {
      const Composition composition = drawn.draw(request.index, attempt);
      judged.base = composition.base;
      judged.components = components_of(composition.root, runtime.registry());
      judged.verdict = judge_root(runtime, host, request, composition.root,
                                  fmt::format("{}/attempt{}", request.folder, attempt));
      if (judged.verdict.finding) break;
    }
  }
  const std::string line = verdict_line(judged);
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t part = ::write(base::kAnswerFd, line.data() + written, line.size() - written);
    if (part <= 0) fail_run("tenon fuzz: the process that asked does not listen");
    written += static_cast<std::size_t>(part);
  }
  return 0;
}

Judged judged_in_process(const JudgingRequest& request) {
  fs::create_directories(request.folder);
  const std::string file = request.folder + "/request.json";
  std::ofstream(file) << request_text(request);
  const std::chrono::milliseconds limit(static_cast<std::int64_t>(request.seconds * 1000));
  const auto begin = std::chrono::steady_clock::now();
  const base::ChildResult child = base::run_child(
      {.program = request.program, .arguments = {"fuzz", "--judge", file}, .environment = {}}, limit);
  Judged judged;
  if (child.ended && child.status == 0) {
    judged = read_verdict(child.answer);
  } else {
    judged.index = request.index;
    judged.base = "case";
    judged.verdict.finding =
        Finding{"process",
                fmt::format("{}.{}", base::describe_exit(child, limit), base::last_words(child.words)),
                {"tenon check case.toml", "tenon train case.toml --run-dir a"},
                ""};
  }
  judged.ended = child.ended;
  remove_shared_memory(request.folder);
  judged.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return judged;
}

}  // namespace tenon::fuzz
