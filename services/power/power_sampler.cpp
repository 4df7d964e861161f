#include "power/power_sampler.hpp"

#include "base/elapsed.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace tenon::train {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kFlushBytes = std::size_t{1} << 16;
constexpr double kFlushSeconds = 1;

/// The readings of a source as rows of equal steps.
class PowerFile {
 public:
  PowerFile(const std::string& path, double rate_hz)
      : files_(make_posix_files()), path_(path), rate_hz_(rate_hz) {}

  void open(const PowerSourceInfo& info) {
    file_ = files_->create(path_);
    std::string sensor = info.sensor;
    std::replace_if(
        sensor.begin(), sensor.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    buffer_ = fmt::format("# {}, {}\nseconds,{}\n", sensor, power_origin_name(info.origin),
                          power_unit_name(info.unit));
    flush();
  }
  void add(std::int64_t row, double value) {
    fmt::format_to(std::back_inserter(buffer_), "{:.6f},{:.9g}\n", static_cast<double>(row) / rate_hz_,
                   value);
    if (buffer_.size() >= kFlushBytes || base::seconds_since(flushed_) >= kFlushSeconds) flush();
  }
  void flush() {
    if (file_ == nullptr) return;
    file_->append(std::as_bytes(std::span(buffer_)));
    buffer_.clear();
    flushed_ = base::Steady::now();
  }

 private:
  std::unique_ptr<FileSystem> files_;
  std::string path_, buffer_;
  double rate_hz_;
  std::unique_ptr<WritableFile> file_;
  base::Steady::time_point flushed_ = base::Steady::now();
};

}  // namespace

std::string_view power_origin_name(PowerOrigin origin) {
  return origin == PowerOrigin::kMeasured ? "measured" : "modelled";
}

std::string_view power_unit_name(PowerUnit unit) {
  return unit == PowerUnit::kWatts ? "watts" : "share";
}

struct PowerSampler::Shared {
  explicit Shared(Spec of) : spec(std::move(of)), file(spec.path, spec.rate_hz) {}

  /// A call of the source, which may take any time. False: it came back after end() had given it up, or
  /// threw.
  template <typename Call>
  bool call(const char* what, Call&& body) {
    const ComponentRef& ref = spec.source->component.handle().ref();
    {
      const std::lock_guard lock(mutex);
      within = what;
    }
    std::string failure;
    try {
      guard({ref.plugin, ref.name, spec.local_rank, -1, nullptr, kWatchedElsewhere}, body);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const std::lock_guard lock(mutex);
    within = nullptr;
    if (abandoned) return false;
    if (!failure.empty()) give_up(failure);
    return failure.empty();
  }

  void give_up(const std::string& why) {
    readings.ended = why;
    spec.report(why);
  }

  /// A reading taken at `at_s` after the beginning.
  void take(double value, double at_s) {
    const auto row = std::max(next, static_cast<std::int64_t>(at_s * spec.rate_hz));
    const bool share = readings.info->unit == PowerUnit::kShare;
    if (!std::isnan(value) && (!std::isfinite(value) || value < 0 || (share && value > 1))) {
      return give_up(fmt::format("it gave {:g} {}; expected a finite number that is not negative{}", value,
                                 power_unit_name(readings.info->unit), share ? " and at most 1" : ""));
    }
    for (; next < row; ++next) write(last, true);
    const bool fresh = !std::isnan(value);
    if (fresh && value != last) ++readings.changes;
    if (fresh) last = value;
    write(last, !fresh);
    ++next;
  }

  void write(double value, bool held) {
    if (std::isnan(value)) return;
    if (readings.rows == 0) readings.lowest = readings.highest = value;
    ++readings.rows;
    readings.held += held ? 1 : 0;
    readings.sum += value;
    readings.lowest = std::min(readings.lowest, value);
    readings.highest = std::max(readings.highest, value);
    file.add(next, value);
  }

  const Spec spec;
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false, done = false, abandoned = false;
  const char* within = nullptr;  ///< the call of the source that has not returned
  PowerReadings readings;
  PowerFile file;
  double last = kNone;
  std::int64_t next = 0;  ///< row
};

PowerSampler::PowerSampler(Spec spec) : shared_(std::make_shared<Shared>(std::move(spec))) {
  shared_->readings.rate_hz = shared_->spec.rate_hz;
  shared_->readings.counted_j = kNone;
}

PowerSampler::~PowerSampler() {
  end();
}

void PowerSampler::begin() {
  thread_ = std::thread([shared = shared_] {
    run(shared);
    const std::lock_guard lock(shared->mutex);
    shared->done = true;
    shared->changed.notify_all();
  });
}

void PowerSampler::run(const std::shared_ptr<Shared>& shared) {
  Shared& self = *shared;
  PowerSource& source = *self.spec.source->source;
  PowerSourceInfo info;
  if (!self.call("open", [&] { info = source.open(self.spec.local_rank); })) return;
  try {
    const std::lock_guard lock(self.mutex);
    self.readings.info = info;
    self.file.open(info);
  } catch (const std::exception& error) {
    const std::lock_guard lock(self.mutex);
    return self.give_up(error.what());
  }
  const base::Steady::time_point begun = base::Steady::now();
  double value = kNone;
  while (true) {
    if (!self.call("read", [&] { value = source.read(self.spec.clock->now()); })) return;
    std::unique_lock lock(self.mutex);
    try {
      self.take(value, base::seconds_since(begun));
    } catch (const std::exception& error) {  // of the file
      return self.give_up(error.what());
    }
    if (!self.readings.ended.empty()) return;
    const auto due = begun + std::chrono::duration_cast<base::Steady::duration>(std::chrono::duration<double>(
                                 static_cast<double>(self.next) / self.spec.rate_hz));
    if (self.changed.wait_until(lock, due, [&] { return self.stop; })) break;
  }
  double joules = kNone;
  if (!self.call("joules", [&] { joules = source.joules(); })) return;
  const std::lock_guard lock(self.mutex);
  self.readings.counted_j = joules;
  if (self.readings.rows == 0) self.give_up("it gave no reading");
}

PowerReadings PowerSampler::end() {
  std::unique_lock lock(shared_->mutex);
  if (!thread_.joinable()) return shared_->readings;
  shared_->stop = true;
  shared_->changed.notify_all();
  const auto patience = std::chrono::duration<double>(shared_->spec.patience_s);
  if (!shared_->changed.wait_for(lock, patience, [&] { return shared_->done; })) {
    shared_->abandoned = true;
    shared_->give_up(fmt::format("{}() has not returned within {:g} s",
                                 shared_->within == nullptr ? "write" : shared_->within,
                                 shared_->spec.patience_s));
    // Code of the source may run on: what it lives on is never freed.
    static_cast<void>(new std::shared_ptr<Shared>(shared_));
    thread_.detach();
  }
  try {
    shared_->file.flush();
  } catch (const std::exception& error) {
    shared_->give_up(error.what());
  }
  PowerReadings out = shared_->readings;
  lock.unlock();
  if (thread_.joinable()) thread_.join();
  return out;
}

}  // namespace tenon::train
