// Means are updated in place (Welford), so that a long run loses no digits.
#include "loop/distributions.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <sstream>

namespace tenon::train {

void Distributions::record(std::string_view name, double value) {
  if (name.empty() || name.find_first_of(" \t\n") != std::string_view::npos)
    fail_plugin(fmt::format("record: the name '{}' is empty or has spaces", name));
  if (!std::isfinite(value)) fail_plugin(fmt::format("record: '{}' is {}", name, value));
  const std::lock_guard lock(mutex_);
  auto found = entries_.find(name);
  if (found == entries_.end()) found = entries_.emplace(std::string(name), Entry()).first;
  Entry& entry = found->second;
  Distribution& whole = entry.whole;
  whole.least = whole.count == 0 ? value : std::min(whole.least, value);
  whole.most = whole.count == 0 ? value : std::max(whole.most, value);
  ++whole.count;
  whole.mean += (value - whole.mean) / static_cast<double>(whole.count);
  if (value > 0) {
    ++whole.octaves[std::ilogb(value)];
  } else {
    ++whole.not_positive;
  }
  entry.sum += value;
  ++entry.count;
}

void Distributions::means(const std::function<void(std::string_view name, double mean)>& line) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, entry] : entries_) {
    if (entry.count == 0) continue;
    line(name, entry.sum / static_cast<double>(entry.count));
    entry.sum = 0;
    entry.count = 0;
  }
}

std::string Distributions::window() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [name, entry] : entries_) {
    if (entry.count > 0) text += fmt::format("{} {:a} {}\n", name, entry.sum, entry.count);
  }
  return text;
}

void Distributions::set_window(const std::string& text) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, entry] : entries_) entry.sum = 0, entry.count = 0;
  std::istringstream in(text);
  std::string name, sum;
  std::uint64_t count = 0;
  while (in >> name >> sum >> count) {
    entries_[name].sum = std::strtod(sum.c_str(), nullptr);
    entries_[name].count = count;
  }
}

std::map<std::string, Distribution> Distributions::all() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Distribution> out;
  for (const auto& [name, entry] : entries_) {
    if (entry.whole.count > 0) out[name] = entry.whole;  // a window that was given back is of another segment
  }
  return out;
}

std::string Distributions::text() const {
  std::string text;
  for (const auto& [name, d] : all()) {
    fmt::format_to(std::back_inserter(text), "{} {} {:.17g} {:.17g} {:.17g} {} {}", name, d.count, d.mean,
                   d.least, d.most, d.not_positive, d.octaves.size());
    for (const auto& [octave, count] : d.octaves)
      fmt::format_to(std::back_inserter(text), " {} {}", octave, count);
    text += '\n';
  }
  return text;
}

void merge_distributions(std::map<std::string, Distribution>& into, const std::string& text) {
  std::istringstream in(text);
  std::string name;
  while (in >> name) {
    Distribution other;
    std::size_t octaves = 0;
    in >> other.count >> other.mean >> other.least >> other.most >> other.not_positive >> octaves;
    Distribution& whole = into[name];
    const auto before = static_cast<double>(whole.count), added = static_cast<double>(other.count);
    whole.least = whole.count == 0 ? other.least : std::min(whole.least, other.least);
    whole.most = whole.count == 0 ? other.most : std::max(whole.most, other.most);
    whole.mean = (whole.mean * before + other.mean * added) / (before + added);
    whole.count += other.count;
    whole.not_positive += other.not_positive;
    for (std::size_t i = 0; i < octaves; ++i) {
      int octave = 0;
      std::uint64_t count = 0;
      in >> octave >> count;
      whole.octaves[octave] += count;
    }
  }
}

}  // namespace tenon::train
