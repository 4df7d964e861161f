// Speed of the reader of Criteo's logs on one core: text to checked rows, plain and gzip, beside pandas'
// read_csv on the same file where a Python has it. Usage: criteo_reader [--rows N] [--rounds N] [--python
// PYTHON] [--folder DIR]
#include "criteo_cache.hpp"
#include "testing/criteo_text.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace tenon::ctr;

double seconds_of(const auto& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::int64_t read_all(const std::string& path) {
  CriteoReader reader(path);
  std::vector<CriteoRow> rows(8192);
  std::int64_t count = 0;
  while (const std::size_t now = reader.read(rows)) count += static_cast<std::int64_t>(now);
  return count;
}

/// Seconds that read_csv needs, measured inside Python; negative when there is no pandas.
double pandas_seconds(const std::string& python, const std::string& path) {
  const std::string command =
      fmt::format("{} {}/bench/criteo_pandas.py {} 2>/dev/null", python, TENON_SOURCE_DIR, path);
  double seconds = -1;
  if (FILE* pipe = ::popen(command.c_str(), "r")) {
    if (std::fscanf(pipe, "%lf", &seconds) != 1) seconds = -1;
    ::pclose(pipe);
  }
  return seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string rates(std::vector<double> seconds, double megabytes) {
  std::sort(seconds.begin(), seconds.end());
  return fmt::format("{:.0f} MB/s ({:.0f} to {:.0f})", megabytes / median(seconds),
                     megabytes / seconds.back(), megabytes / seconds.front());
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--rows", "500000"}, {"--rounds", "5"}, {"--python", ""}, {"--folder", "/tmp"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const auto rows = static_cast<std::uint64_t>(std::atoll(options["--rows"].c_str()));
  const std::string folder = options["--folder"] + "/criteo_reader." + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const std::string plain = folder + "/rows.txt", packed = folder + "/rows.txt.gz";
  {
    std::ofstream out(plain, std::ios::binary);
    const gzFile gz = ::gzopen(packed.c_str(), "wb6");
    for (std::uint64_t i = 0; i < rows; ++i) {
      const std::string line = criteo_line(1, i);
      out << line;
      ::gzwrite(gz, line.data(), static_cast<unsigned>(line.size()));
    }
    ::gzclose(gz);
  }
  const double megabytes = static_cast<double>(std::filesystem::file_size(plain)) / 1e6;
  const std::string python = options["--python"];
  std::map<std::string, std::vector<double>> seconds;
  for (int round = 0; round < std::atoi(options["--rounds"].c_str()); ++round) {
    seconds["reader, plain"].push_back(seconds_of([&] { read_all(plain); }));
    seconds["reader, gzip"].push_back(seconds_of([&] { read_all(packed); }));
    seconds["first start, plain: packed, digest, on disk"].push_back(seconds_of([&] {
      std::filesystem::remove_all(folder + "/tenon-cache");
      const CriteoCache cache(plain, "", 60);
    }));
    if (!python.empty()) {
      const double now = pandas_seconds(python, plain);
      if (now > 0) seconds["pandas read_csv, plain"].push_back(now);
    }
  }
  fmt::print("{} rows, {:.0f} MB of text, one core\n", rows, megabytes);
  for (const auto& [name, times] : seconds) fmt::print("{:46} {}\n", name, rates(times, megabytes));
  if (const auto pandas = seconds.find("pandas read_csv, plain"); pandas != seconds.end()) {
    fmt::print("reader over pandas: {:.1f} x\n", median(pandas->second) / median(seconds["reader, plain"]));
  } else {
    fmt::print("pandas: skipped, {}\n", python.empty() ? "no --python" : python + " cannot import pandas");
  }
  std::filesystem::remove_all(folder);
  return 0;
}
