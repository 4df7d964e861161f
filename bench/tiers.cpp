// Steps of a DLRM whose row tables live in tiers of memory, against the same steps without [tables],
// interleaved in one run: time of a step as a ratio. Each step has samples of its own, so that caches see a
// power law and no repetition. Beside the disk tier: how many random reads of 4 KiB the disk of its folder
// does in the same run. Tiers that this build lacks are skipped. Usage: tiers [--rounds N] [--steps N]
// [--threads N]; TENON_BENCH_DISK names the folder of the disk tier, the temporary folder otherwise.
#include "data_sets.hpp"
#include "dlrm_shape.hpp"

#include <tenon/random.hpp>

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

namespace {

using namespace tenon;
using bench::Settings;

TENON_STATIC_PLUGIN(ready,
                    PluginInfo{.id = "bench.ready", .version = "1.0.0", .summary = "batches in memory"},
                    bench::ReadyBatches)

constexpr double kExponent = 1.05;
constexpr double kLoadFactor = 0.2;  ///< of caches, and of the pages that the disk tier keeps in memory

struct Case {
  std::string name, tables;  ///< [tables] and its places
};

std::string disk_folder() {
  const char* const named = std::getenv("TENON_BENCH_DISK");
  return named != nullptr ? named : std::filesystem::temp_directory_path().string();
}

std::vector<Case> cases(const bench::DlrmShape& shape) {
  const auto place = [](const std::string& tier, int prefetch = 0) {
    return fmt::format("[tables]\nprefetch = {}\n[[tables.place]]\nmatch = \"*\"\ntier = {{ {} }}\n",
                       prefetch, tier);
  };
  const int table_bytes = shape.rows * 16 * 4;
  const std::string file = fmt::format("type = \"file\", folder = \"{}\", resident = \"{}\"", disk_folder(),
                                       static_cast<std::int64_t>(kLoadFactor * table_bytes));
  const auto cached = [](const std::string& policy) {
    return fmt::format(
        "type = \"cached\", load_factor = {}, policy = \"{}\", front = {{ type = \"dram\" }}, "
        "behind = {{ type = \"dram\" }}",
        kLoadFactor, policy);
  };
  return {{"no tier", ""},
          {"dram", place("type = \"dram\"")},
          {"shared", place("type = \"shared\"")},
          {"cached, lru", place(cached("lru"))},
          {"cached, lfu", place(cached("lfu"))},
          {"cached, clock", place(cached("clock"))},
          {"half", place("type = \"half\"")},
          {"file", place(file)},
          {"file, prefetch 1", place(file, 1)}};
}

/// Milliseconds of a step; nothing where this build lacks the tier, which it says.
std::optional<double> step_ms(const bench::DlrmShape& shape, const Case& which, const Settings& settings) {
  try {
    const std::string config = bench::config_text(shape, "fp32", settings) + which.tables;
    return 1000 * shape.batch / bench::our_rate(config, "train/samples_per_s", &ready);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    const std::string_view text = error.what();
    fmt::print("{}: skipped: {}\n", which.name, text.substr(0, text.find('\n')));
    return std::nullopt;
  }
}

/// Random reads of 4 KiB that bypass the page cache, by so many threads at a time.
double reads_per_second(int threads) {
  constexpr std::int64_t kPage = 4096, kPages = 65536;
  const std::string path = fmt::format("{}/tenon-bench-disk-{}", disk_folder(), ::getpid());
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail_run(fmt::format("{}: cannot be made", path));
  std::vector<std::byte> megabyte(1 << 20, std::byte{7});
  for (std::int64_t at = 0; at < kPages * kPage; at += static_cast<std::int64_t>(megabyte.size())) {
    if (::pwrite(file, megabyte.data(), megabyte.size(), at) != static_cast<ssize_t>(megabyte.size()))
      fail_run(fmt::format("{}: cannot be written", path));
  }
  ::fsync(file);
  ::close(file);
  const int direct = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  ::unlink(path.c_str());
  if (direct < 0) return -1;  // no such reads on this file system
  std::atomic<std::int64_t> reads = 0;
  std::atomic<bool> fails = false;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<std::thread> readers;
  for (int t = 0; t < threads; ++t) {
    readers.emplace_back([&, t] {
      alignas(kPage) std::byte page[kPage];
      const RandomKey key = random_key(static_cast<std::uint64_t>(t), "bench.disk");
      for (std::uint64_t i = 0; seconds() < 1 && !fails; ++i) {
        const auto at = static_cast<std::int64_t>(random_uniform(key, 0, i) * kPages) * kPage;
        fails = fails || ::pread(direct, page, kPage, at) != kPage;
        ++reads;
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  ::close(direct);
  return fails ? -1 : static_cast<double>(reads) / seconds();
}

int run(const Settings& settings) {
  bench::DlrmShape shape;
  shape.exponent = kExponent;
  shape.ready = settings.steps;
  fmt::print("DLRM of {} tables x {} rows, exponent {}, batch {}, {} thread(s)\n", shape.tables, shape.rows,
             shape.exponent, shape.batch, settings.threads);
  const std::vector<Case> all = cases(shape);
  std::vector<std::vector<double>> times(all.size()), ratios(all.size());
  std::set<std::size_t> skipped;
  for (int round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (skipped.contains(i)) continue;
      const std::optional<double> time = step_ms(shape, all[i], settings);
      if (!time) {
        skipped.insert(i);
        continue;
      }
      times[i].push_back(*time);
      ratios[i].push_back(*time / times[0].back());
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (skipped.contains(i)) continue;
    fmt::print("{}: {:.2f} ms a step, best {:.2f}; {} x no tier\n", all[i].name, bench::median(times[i]),
               *std::min_element(times[i].begin(), times[i].end()), bench::spread(ratios[i]));
  }
  for (const int threads : {1, 16}) {
    const double reads = reads_per_second(threads);
    if (reads < 0) {
      fmt::print("{}: no direct reads there\n", disk_folder());
      break;
    }
    fmt::print("{}: {:.0f} random reads of 4 KiB a second, {} at a time\n", disk_folder(), reads, threads);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tenon::bench::run_program("tiers", argc, argv, {.rounds = 7, .steps = 60}, run);
}
