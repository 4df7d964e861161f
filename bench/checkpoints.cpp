// The costs of checkpoints: the stall of a training step at a background save against a plain copy, a
// committed generation against raw writes, a restore against raw reads, each between two runs of its peer.
// Ends with 1 when a median misses its aim. Usage: checkpoints [--rounds N] [--megabytes N] [--folder FOLDER
// on a disk] [--json true: figures for bench/compare]
#include "step_bench.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace tenon::bench {

// The disk's own speed for the bytes of a file: large writes and a sync, reads with and without the page
// cache. Linux only, like the calls that drop and count cached pages.

inline constexpr std::size_t kRawPiece = std::size_t{8} << 20;

/// An open file; every call on it that fails ends the benchmark.
class RawFile {
 public:
  RawFile(std::string path, int flags)
      : path_(std::move(path)), descriptor_(check(::open(path_.c_str(), flags, 0644))) {}
  ~RawFile() { ::close(descriptor_); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::size_t size() const {
    struct stat status {};
    check(::fstat(descriptor_, &status));
    return status.st_size;
  }
  template <typename Result>
  Result check(Result result) const {
    if (result < 0) fail_run(fmt::format("{}: {}", path_, std::strerror(errno)));
    return result;
  }

 private:
  std::string path_;
  int descriptor_;
};

/// A folder in memory has no disk to compare with.
inline void require_disk(const std::string& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) fail_run(fmt::format("{}: {}", folder, std::strerror(errno)));
  if (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC)
    fail_run(fmt::format("{} lies in memory; name a folder on a disk with --folder", folder));
}

/// Waits until no earlier measurement still writes to the disk.
inline void sync_disk(const std::string& folder) {
  const RawFile file(folder, O_RDONLY | O_DIRECTORY);
  file.check(::syncfs(file.descriptor()));
}

/// Writes a new file to the medium, without syncing its name.
inline void write_raw(const std::string& path, std::span<const std::byte> bytes) {
  const RawFile file(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t piece = std::min(kRawPiece, bytes.size() - done);
    done += file.check(::pwrite(file.descriptor(), bytes.data() + done, piece, static_cast<off_t>(done)));
  }
  file.check(::fdatasync(file.descriptor()));
}

/// Reads the file into the beginning of `out`; returns its size.
inline std::size_t read_raw(const std::string& path, std::span<std::byte> out) {
  const RawFile file(path, O_RDONLY);
  std::size_t done = 0;
  for (;;) {
    const std::size_t piece = std::min(kRawPiece, out.size() - done);
    const std::size_t got = file.check(::read(file.descriptor(), out.data() + done, piece));
    if (got == 0) return done;
    done += got;
  }
}

/// Drops the file from the page cache, which only clean pages leave, and checks that it is gone. The cache of
/// a virtual machine's host stays.
inline void drop_cached(const std::string& path) {
  const RawFile file(path, O_RDONLY);
  file.check(::fdatasync(file.descriptor()));
  if (::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED) != 0)
    fail_run(path + ": its pages cannot be dropped");
  const std::size_t size = file.size();
  if (size == 0) return;
  void* const map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (map == MAP_FAILED) fail_run(fmt::format("{}: {}", path, std::strerror(errno)));
  std::vector<unsigned char> pages(size / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + 1);
  const int counted = ::mincore(map, size, pages.data());
  ::munmap(map, size);
  file.check(counted);
  const auto cached = std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  if (static_cast<std::size_t>(cached) * 100 > pages.size())
    fail_run(fmt::format("{}: {} of {} pages stayed in the page cache", path, cached, pages.size()));
}

namespace {

namespace fs = std::filesystem;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Call>
double seconds_of(Call call) {
  const double begin = now_s();
  call();
  return now_s() - begin;
}

/// Named float tensors like those of a model: half of it one table, then matrices and vectors.
class State {
 public:
  explicit State(std::int64_t bytes) {
    constexpr std::int64_t kWidth = 1024;
    const std::int64_t rows = bytes / 4 / kWidth;
    add("table", {rows / 2, kWidth});
    for (int layer = 0; layer < 3; ++layer) {
      add(fmt::format("layer{}.weight", layer), {rows / 6, kWidth});
      add(fmt::format("layer{}.bias", layer), {kWidth});
    }
    std::mt19937_64 random(1);  // no disk can compress such bytes
    for (std::vector<float>& tensor : data_) {
      for (float& x : tensor) x = static_cast<float>(random()) * 0x1p-64F;
    }
  }
  /// Changes every tensor to another version.
  void mark(int moment) {
    for (std::vector<float>& tensor : data_) tensor.front() = tensor.back() = static_cast<float>(moment);
  }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const SaveItem& item : items_) sum += item.data.bytes();
    return sum;
  }
  const std::vector<SaveItem>& items() const { return items_; }
  void require_same(const State& other) const {
    for (std::size_t i = 0; i < data_.size(); ++i) {
      if (std::memcmp(data_[i].data(), other.data_[i].data(), 4 * data_[i].size()) != 0)
        fail_run(fmt::format("tensor '{}' was not restored as it was saved", items_[i].name));
    }
  }

 private:
  void add(std::string name, const Shape& shape) {
    std::vector<float>& values = data_.emplace_back(static_cast<std::size_t>(shape.elements()));
    Shape origin = shape;
    for (int d = 0; d < origin.rank(); ++d) origin[d] = 0;
    items_.push_back(
        {.name = std::move(name), .data = {values.data(), shape}, .global_shape = shape, .offset = origin});
  }

  std::vector<std::vector<float>> data_;
  std::vector<SaveItem> items_;
};

/// Seconds of one operation in the rounds of this run, and of its peer just before and just after it.
struct Figure {
  std::vector<double> own, peer, ratio;

  /// The ratio is that of the rates.
  void add(double seconds, double peer_before, double peer_after) {
    own.push_back(seconds);
    peer.push_back((peer_before + peer_after) / 2);
    ratio.push_back(peer.back() / own.back());
  }
  void print(const char* name, double gigabytes, const char* peer_name, double aim) const {
    fmt::print("{}: {} GB/s, {} {} GB/s, ratio {}", name, rates(own, gigabytes), peer_name,
               rates(peer, gigabytes), spread(ratio));
    if (aim > 0) fmt::print(", aim {}{}", aim, met(aim) ? "" : ": MISSED");
    fmt::print("\n");
  }
  bool met(double aim) const { return median(ratio) >= aim; }

 private:
  static std::string rates(const std::vector<double>& seconds, double gigabytes) {
    std::vector<double> values;
    for (const double s : seconds) values.push_back(gigabytes / s);
    return spread(values);
  }
};

/// One store and one saver in `folder`.
class Measurement {
 public:
  Measurement(std::string folder, std::int64_t megabytes)
      : folder_(std::move(folder)), state_(megabytes * 1'000'000), restored_(megabytes * 1'000'000) {
    buffer_.assign(static_cast<std::size_t>(state_.bytes()) + kRawPiece, std::byte{});
    copy_s();
    // The first save touches the saver's memory; from the third on each removes an older one.
    first_stall_ = stall_s();
    persist_s();
    stall_s();
    persist_s();
    phase_s_.clear();
  }

  void round() {
    // The time to find pages for a file depends on how memory was last freed: a virtual machine gets pages
    // that were free for longer back from its host, which takes more than the disk. So every write comes
    // after a raw write and two copies, and every read after another read, some of which do not count.
    const auto write_as_late_s = [&] {
      write_s();
      copy_s();
      copy_s();
      return write_s();
    };
    const double written = write_as_late_s();
    const double copied = copy_s();
    const double stalled = stall_s();
    const double removed = persist_s();
    const double committed = removed - phase_s_.at("gc").back();
    const double written_again = write_as_late_s();
    committed_.add(committed, written, written_again);
    removed_.add(removed, written, written_again);
    stall_.push_back(2 * stalled / (copied + copy_s()));
    for (const bool cold : {true, false}) {
      read_s(cold);
      const double before = read_s(cold);
      const double restored = restore_s(cold);
      (cold ? cold_ : warm_).add(restored, before, read_s(cold));
    }
    read_s(true);
    const double before = read_s(true);
    const double recovered = recover_s();
    recover_.add(recovered, before, read_s(true));
  }

  void print_figures() const {
    const auto rate = [&](const std::vector<double>& seconds) { return gigabytes() / median(seconds); };
    print_json({{"save_gb_per_s", rate(committed_.own)},
                {"save_of_raw", median(committed_.ratio)},
                {"load_gb_per_s", rate(cold_.own)},
                {"load_of_raw", median(cold_.ratio)}});
  }

  /// Whether every figure met its aim.
  bool print() const {
    constexpr double kStall = 1.2, kPersist = 0.8, kRestore = 0.7;
    const bool short_stall = median(stall_) <= kStall;
    fmt::print("stall of a save: {} plain copies, aim {}{}; of the first save: {:.2f} s\n", spread(stall_),
               kStall, short_stall ? "" : ": MISSED", first_stall_);
    committed_.print("committed generation", gigabytes(), "written raw", kPersist);
    removed_.print("and an older one removed", gigabytes(), "written raw", 0);
    for (const char* phase : {"write", "sync", "manifest", "verify", "rename", "gc"})
      fmt::print("  {:<9} {} s\n", phase, spread(phase_s_.at(phase)));
    cold_.print("restore, cold", gigabytes(), "read raw", kRestore);
    warm_.print("restore, warm", gigabytes(), "read raw", 0);
    recover_.print("recover + restore, cold", gigabytes(), "read raw", 0);
    return short_stall && committed_.met(kPersist) && cold_.met(kRestore);
  }

 private:
  double gigabytes() const { return 1e-9 * static_cast<double>(state_.bytes()); }

  /// Copies the tensors into one buffer that was touched before.
  double copy_s() {
    return seconds_of([&] {
      std::byte* to = buffer_.data();
      for (const SaveItem& item : state_.items()) {
        std::memcpy(to, item.data.data, item.data.raw().size());
        to += item.data.raw().size();
      }
    });
  }

  /// Seconds for which a step waits.
  double stall_s() {
    state_.mark(static_cast<int>(++step_));
    const double seconds = seconds_of([&] {
      const SaveRequest request{.step = step_, .items = state_.items()};
      if (!saver_.ready(step_)) fail_run("the saver is still busy");
      saver_.submit(request);
    });
    state_.mark(-1);  // the save has its copy
    return seconds;
  }

  /// From the end of the stall until the generation is committed and an older one removed.
  double persist_s() {
    constexpr double kDeadline = 600;
    const double seconds = seconds_of([&] { saver_.wait(kDeadline); });
    for (const SaveResult& result : saver_.take_results()) {
      if (result.status != SaveStatus::kCommitted || !result.error.empty()) fail_run(result.error);
    }
    sync_disk(folder_);
    return seconds;
  }

  /// Writes a new raw file, which is removed again.
  double write_s() {
    const std::string path = folder_ + "/raw";
    const double seconds = seconds_of([&] { write_raw(path, std::span(buffer_).first(state_.bytes())); });
    fs::remove(path);
    sync_disk(folder_);
    return seconds;
  }

  std::vector<std::string> newest_files() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(fmt::format("{}/step-{}", store_.folder(), step_)))
      paths.push_back(entry.path());
    return paths;
  }
  void drop() const {
    for (const std::string& path : newest_files()) drop_cached(path);
  }

  double read_s(bool cold) {
    if (cold) drop();
    const std::vector<std::string> paths = newest_files();
    return seconds_of([&] {
      std::size_t used = 0;
      for (const std::string& path : paths) used += read_raw(path, std::span(buffer_).subspan(used));
    });
  }

  void read_tensors(std::int64_t step) {
    CheckpointReader reader = store_.open(step);
    for (const SaveItem& item : restored_.items()) reader.read(item.name, item.data);
  }
  void require_restored() {
    state_.mark(static_cast<int>(step_));
    state_.require_same(restored_);
    restored_.mark(0);
  }

  double restore_s(bool cold) {
    if (cold) drop();
    const double seconds = seconds_of([&] { read_tensors(step_); });
    require_restored();
    return seconds;
  }

  /// Recovers as a resumed run does: every byte is verified before the newest generation is chosen.
  double recover_s() {
    drop();
    const double seconds = seconds_of([&] { read_tensors(store_.recover(true).step); });
    require_restored();
    return seconds;
  }

  void enter(const char* phase) {
    const double now = now_s();
    if (phase_ != "done" && !phase_.empty()) phase_s_[phase_].push_back(now - phase_begin_);
    phase_ = phase;
    phase_begin_ = now;
  }

  std::string folder_;
  State state_, restored_;
  std::vector<std::byte> buffer_;
  std::int64_t step_ = 0;
  std::string phase_;
  double phase_begin_ = 0, first_stall_ = 0;
  std::map<std::string, std::vector<double>> phase_s_;
  std::vector<double> stall_;
  Figure committed_, removed_, cold_, warm_, recover_;

  std::unique_ptr<FileSystem> files_ = make_posix_files();
  CheckpointStore store_{
      *files_, folder_ + "/checkpoints", {.hook = [this](const char* phase) { enter(phase); }}};
  SoloExchange alone_;
  AsyncSaver saver_{store_, 0, 1, alone_, {}};
};

int run(const std::string& parent, std::int64_t megabytes, int rounds, bool json) {
  const std::string folder = fmt::format("{}/checkpoints.{}", parent, ::getpid());
  fs::create_directories(folder);
  const std::shared_ptr<void> removed(nullptr, [&](void*) { fs::remove_all(folder); });
  require_disk(folder);
  Measurement measurement(folder, megabytes);
  for (int i = 0; i < rounds; ++i) measurement.round();
  if (json) {
    measurement.print_figures();
    return 0;
  }
  fmt::print("{} MB of float tensors in {}, {} rounds\n", megabytes, parent, rounds);
  return measurement.print() ? 0 : 1;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--rounds", "9"}, {"--megabytes", "512"}, {"--folder", std::filesystem::temp_directory_path()}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  try {
    return tenon::bench::run(options["--folder"], std::atoll(options["--megabytes"].c_str()),
                             std::atoi(options["--rounds"].c_str()), options["--json"] == "true");
  } catch (const tenon::Error& error) {
    std::fprintf(stderr, "checkpoints: %s\n", error.what());
    return error.exit_status();
  }
}
