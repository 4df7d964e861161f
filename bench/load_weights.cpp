// Weights of a stored run against the file that holds them: 512 MiB in a checkpoint, read into memory as
// [init] and layers read them, every block against its checksum; and the same file read by read(2). Both from
// the disk: pages are given up before each reading. Prints the ratio of the rates, median (lowest to
// highest), and resident memory beyond the weights. Usage: load_weights [DIR] (default: the working
// directory).
#include "models/stored_run.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/host.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

using namespace tenon;

constexpr int kRounds = 7, kTensors = 16;
constexpr std::int64_t kRows = 4096, kColumns = 2048;  // 32 MiB of f32
constexpr std::size_t kBytes = std::size_t{kTensors} * kRows * kColumns * 4;

class BenchHost final : public Host {
 public:
  void log(LogLevel, std::string_view) override {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<Actor> spawn(std::string_view, std::function<void(Actor&)>) override { return nullptr; }
  double deadline() const override { return 60; }
  void* query(std::string_view) override { return nullptr; }
};

std::string name_of(int tensor) {
  return fmt::format("layer.{:02}.weight", tensor);
}

void write_run(FileSystem& files, const std::string& folder) {
  std::vector<float> values(kBytes / 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 8191);
  std::vector<SaveItem> items;
  for (int t = 0; t < kTensors; ++t) {
    SaveItem& item = items.emplace_back();
    const Shape shape{kRows, kColumns};
    item.name = "model/" + name_of(t);
    item.data = {values.data() + static_cast<std::ptrdiff_t>(t) * kRows * kColumns, shape, DType::kF32,
                 MemorySpace::kHost};
    item.global_shape = shape;
    item.offset = Shape{0, 0};
  }
  CheckpointStore store(files, folder + "/checkpoints", {});
  SoloExchange alone;
  SaveRequest request;
  request.items = items;
  store.save(request, 0, 1, alone);
  std::ofstream(folder + "/config.resolved.toml") << "[model]\ntype = \"mlp\"\n";
  std::ofstream(folder + "/metrics.jsonl");
}

void give_up_pages(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

double seconds(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = std::string(argc > 1 ? argv[1] : ".") + "/load_weights.run";
  std::filesystem::create_directories(folder);
  const auto files = make_posix_files();
  write_run(*files, folder);
  const std::string path = folder + "/checkpoints/step-0/rank0.safetensors";
  std::vector<std::byte> memory(kBytes);
  Registry registry;
  BenchHost host;
  std::vector<double> ratios, rates;
  std::size_t beyond = 0;
  for (int round = 0; round < kRounds; ++round) {
    give_up_pages(path);
    const double plain = seconds([&] {
      const int file = ::open(path.c_str(), O_RDONLY);
      std::size_t at = 0;
      for (ssize_t got = 1; got > 0 && at < kBytes; at += static_cast<std::size_t>(got))
        got = ::read(file, memory.data() + at, std::min<std::size_t>(kBytes - at, std::size_t{4} << 20));
      ::close(file);
    });
    give_up_pages(path);
    const std::size_t before = resident_bytes();
    std::size_t most = before;
    const double loaded = seconds([&] {
      models::StoredRun run("bench", *files, registry, host, folder, {});
      for (int t = 0; t < kTensors; ++t) {
        std::byte* const at = memory.data() + static_cast<std::size_t>(t) * kRows * kColumns * 4;
        run.read(name_of(t), Shape{0, 0}, {at, Shape{kRows, kColumns}, DType::kF32, MemorySpace::kHost});
        most = std::max(most, resident_bytes());
      }
    });
    ratios.push_back(plain / loaded);
    rates.push_back(static_cast<double>(kBytes) / loaded / (1 << 20));
    beyond = std::max(beyond, most - before);
  }
  std::filesystem::remove_all(folder);
  std::ranges::sort(ratios);
  std::ranges::sort(rates);
  fmt::print(
      "512 MiB of weights, {} rounds: {:.2f} x the rate of read(2) ({:.2f} to {:.2f}), {:.0f} MiB/s; "
      "{:.1f} MiB of memory beyond the weights\n",
      kRounds, ratios[kRounds / 2], ratios.front(), ratios.back(), rates[kRounds / 2],
      static_cast<double>(beyond) / (1 << 20));
}
