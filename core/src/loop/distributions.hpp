// Distributions of the numbers that strategies record by name (Replica::record); single values are not kept.
// Any thread records; one reads.
#pragma once

#include <tenon/runtime.hpp>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace tenon::train {

class Distributions {
 public:
  void record(std::string_view name, double value);
  /// Calls back with each name's mean since the last call; names without new values are left out.
  void means(const std::function<void(std::string_view name, double mean)>& line);
  /// State of the next call of means(), as exact text, and back: a checkpoint keeps it.
  std::string window() const;
  void set_window(const std::string& text);
  std::map<std::string, Distribution> all() const;
  /// As text between ranks: names have no spaces.
  std::string text() const;

 private:
  struct Entry {
    Distribution whole;
    double sum = 0;  ///< since the last line
    std::uint64_t count = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_;
};

/// Adds what another rank's text() said.
void merge_distributions(std::map<std::string, Distribution>& into, const std::string& text);

}  // namespace tenon::train
