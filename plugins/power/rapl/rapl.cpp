#include "rapl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace tenon::rapl {
namespace {

namespace fs = std::filesystem;

/// The counters change about once a millisecond.
constexpr double kUpdateS = 1e-3;
constexpr const char* kPrefix = "intel-rapl:";

/// The first line; empty with `error` set where it cannot be read.
std::string line_of(const std::string& file, int& error) {
  errno = 0;
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  error = !in.is_open() || in.bad() ? (errno != 0 ? errno : EIO) : 0;
  return line;
}

/// Whether `text` is one count of microjoules and nothing else.
bool parse_count(const std::string& text, std::int64_t& count) {
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, count);
  return problem == std::errc() && stop == end && count >= 0 && count <= std::int64_t{1} << 60;
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Rapl::Rapl(const Options& options, double (*clock)()) : root_(options.text("root")), clock_(clock) {}

std::int64_t Rapl::count_of(const std::string& file) const {
  int error = 0;
  const std::string text = line_of(file, error);
  if (error == EACCES || error == EPERM)
    fail_run(
        fmt::format("{} cannot be read: {}. Its reader must be root, or have been allowed to: sudo chmod a+r "
                    "{}/{}*/energy_uj",
                    file, std::strerror(error), root_, kPrefix));
  if (error != 0) fail_run(fmt::format("{} cannot be read: {}", file, std::strerror(error)));
  std::int64_t count = 0;
  if (!parse_count(text, count))
    fail_run(fmt::format("{} has '{}'; expected a count of microjoules", file, text.substr(0, 60)));
  return count;
}

PowerSourceInfo Rapl::open(int) {
  packages_.clear();
  std::error_code failure;
  PowerSourceInfo info;
  bool all_rated = true;
  for (const fs::directory_entry& zone : fs::directory_iterator(root_, failure)) {
    const std::string folder = zone.path().filename();
    // intel-rapl:0 is a package, intel-rapl:0:1 a part of it, and intel-rapl-mmio:0 the package once more.
    if (!folder.starts_with(kPrefix) || std::count(folder.begin(), folder.end(), ':') != 1) continue;
    int error = 0;
    const std::string name = line_of(zone.path() / "name", error);
    if (!name.starts_with("package")) continue;
    Package package{name, zone.path() / "energy_uj"};
    package.most = count_of(zone.path() / "max_energy_range_uj");
    package.last = count_of(package.file);
    std::int64_t microwatts = 0;
    if (parse_count(line_of(zone.path() / "constraint_0_max_power_uw", error), microwatts) &&
        microwatts > 0) {
      info.rated += 1e-6 * static_cast<double>(microwatts);
    } else {
      all_rated = false;
    }
    packages_.push_back(std::move(package));
  }
  if (packages_.empty())
    fail_run(
        fmt::format("no {}/{}* is a processor package{}; virtual machines and containers often have none",
                    root_, kPrefix, failure ? " (" + failure.message() + ")" : ""));
  std::sort(packages_.begin(), packages_.end(),
            [](const Package& a, const Package& b) { return a.name < b.name; });
  for (const Package& package : packages_)
    info.sensor += (info.sensor.empty() ? "RAPL " : ", ") + package.name;
  if (!all_rated) info.rated = 0;
  sum_uj_ = value_uj_ = 0;
  value_s_ = clock_();
  return info;
}

void Rapl::update() {
  for (Package& package : packages_) {
    const std::int64_t now = count_of(package.file);
    if (now > package.most)
      fail_run(fmt::format("{} has {}; expected at most the {} of max_energy_range_uj", package.file, now,
                           package.most));
    sum_uj_ += now >= package.last ? now - package.last : now + (package.most - package.last);
    package.last = now;
  }
}

double Rapl::read(double) {
  const double now_s = clock_();
  update();
  const double elapsed_s = now_s - value_s_;
  if (elapsed_s < kUpdateS || sum_uj_ == value_uj_) return std::numeric_limits<double>::quiet_NaN();
  const double watts = 1e-6 * static_cast<double>(sum_uj_ - value_uj_) / elapsed_s;
  value_uj_ = sum_uj_;
  value_s_ = now_s;
  return watts;
}

double Rapl::joules() {
  update();
  return 1e-6 * static_cast<double>(sum_uj_);
}

}  // namespace tenon::rapl

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.power_rapl",
                               .version = "0.1.0",
                               .summary = "watts of processor packages (RAPL)"},
             tenon::rapl::Rapl)
