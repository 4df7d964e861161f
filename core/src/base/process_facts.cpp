// /proc, the clock and the environment.
#include "base/process_facts.hpp"

#include "base/file_descriptor.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string_view>

namespace tenon {
namespace {

constexpr std::array<std::string_view, 7> kPrefixes{"OMP_",    "GOMP_",  "KMP_",     "DNNL_",
                                                    "ONEDNN_", "TENON_", "OPENBLAS_"};

std::string file_text(const std::string& path) {
  return base::read_file(path).value_or("");
}

}  // namespace

std::string proc_field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find_first_not_of(" \t", key.size());
    if (colon == std::string::npos || line[colon] != ':') continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
  }
  return "";
}

namespace {

/// Sum of fields of /proc/self/status, each "N kB", in MiB.
double status_mb(std::initializer_list<const char*> keys) {
  const std::string status = file_text("/proc/self/status");
  double sum = 0;
  for (const char* key : keys) sum += std::strtod(proc_field(status, key).c_str(), nullptr) / 1024.0;
  return sum;
}

}  // namespace

std::int64_t usable_memory_bytes() {
  const double kilobytes = std::strtod(proc_field(file_text("/proc/meminfo"), "MemTotal").c_str(), nullptr);
  auto bytes = static_cast<std::int64_t>(kilobytes * 1024);
  const auto limit = [&](std::int64_t to) {
    if (to > 0 && (bytes == 0 || to < bytes)) bytes = to;
  };
  // "max" is no number and reads as 0; where version 1 has no limit it says nearly 2^63.
  for (const std::string& folder : control_group_folders(file_text("/proc/self/cgroup"), "memory"))
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"})
      limit(std::strtoll(file_text(folder + file).c_str(), nullptr, 10));
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit allowed{};
    if (::getrlimit(resource, &allowed) == 0 && allowed.rlim_cur != RLIM_INFINITY)
      limit(static_cast<std::int64_t>(std::min<rlim_t>(allowed.rlim_cur, INT64_MAX)));
  }
  return bytes;
}

double peak_rss_mb() {
  // Not getrusage: its maximum is inherited through exec and would show the launcher's memory.
  return status_mb({"VmHWM"});
}

double anonymous_rss_mb() {
  return status_mb({"RssAnon"});
}

double peak_anonymous_rss_mb() {
  return std::max(0.0, peak_rss_mb() - status_mb({"RssFile", "RssShmem"}));
}

std::string cpu_model() {
  const std::string text = file_text("/proc/cpuinfo");
  for (const char* key : {"model name", "Model", "cpu model"}) {  // x86, arm boards, others
    if (std::string model = proc_field(text, key); !model.empty()) return model;
  }
  return "unknown";
}

std::vector<std::string> control_group_folders(const std::string& text, const std::string& controller) {
  const std::string root = "/sys/fs/cgroup";
  std::vector<std::string> second, first;
  const auto upwards = [](std::vector<std::string>& folders, const std::string& mount, std::string path) {
    for (; path.size() > 1; path.resize(path.rfind('/'))) folders.push_back(mount + path);
    folders.push_back(mount);
  };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/group" of version 1, "0::/group"
    const std::size_t names = line.find(':'), path = line.find(":/", names + 1);
    if (names == std::string::npos || path == std::string::npos) continue;
    const std::string controllers = "," + line.substr(names + 1, path - names - 1) + ",";
    if (controllers == ",,")
      upwards(second, root, line.substr(path + 1));
    else if (controllers.find("," + controller + ",") != std::string::npos)
      upwards(first, root + "/" + controller, line.substr(path + 1));
  }
  // The root of each mount is a group of this process in any case.
  if (second.empty()) second.push_back(root);
  if (first.empty()) first.push_back(root + "/" + controller);
  second.insert(second.end(), first.begin(), first.end());
  return second;
}

int quota_cores(const std::string& cpu_max) {
  std::istringstream words(cpu_max);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::ceil(std::min(quota / period, 1e6))));
}

int usable_cores() {
  cpu_set_t allowed;
  int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = CPU_COUNT(&allowed);
  for (const std::string& folder : control_group_folders(file_text("/proc/self/cgroup"), "cpu")) {
    // Version 1 has the two numbers in files of their own, and says -1 where version 2 says "max".
    for (const std::string& limit :
         {file_text(folder + "/cpu.max"),
          file_text(folder + "/cpu.cfs_quota_us") + " " + file_text(folder + "/cpu.cfs_period_us")}) {
      if (const int quota = quota_cores(limit); quota > 0) cores = std::min(cores, quota);
    }
  }
  return std::max(1, cores);
}

std::string utc_text(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count() % 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, milliseconds);
}

std::string utc_now() {
  return utc_text(std::chrono::system_clock::now());
}

std::vector<std::pair<std::string, std::string>> relevant_environment() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool relevant =
        std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return text.starts_with(prefix); });
    const std::size_t equals = text.find('=');
    if (relevant && equals != std::string_view::npos) {
      found.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace tenon
