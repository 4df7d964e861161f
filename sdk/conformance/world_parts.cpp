#include "subject.hpp"

#include "absorb.hpp"
#include "allocation_watch.hpp"
#include "sync_watch.hpp"

#include "base/at.hpp"

#include <tenon/dataset.hpp>
#include <tenon/layer.hpp>
#include <tenon/model.hpp>
#include <tenon/observer.hpp>
#include <tenon/testing/tensors.hpp>

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace tenon::conformance {
namespace {

constexpr std::int64_t kTrainSamples = 256;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::int64_t whole_number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

class Data final : public Dataset {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::texts("fields", "[\"x:real:8\", \"t:real:1\"]")
          .doc_text("name:real|i32:AxBxC per sample:numbers below"),
      option::texts("attributes", "[]").doc_text("name=number"),
      option::integer("batch", "4").at_least(1),
      option::boolean("planted", "true").doc_text("the last field follows the first where both are real"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "conformance_data", .summary = "data of any shape", .options = kOptions};

  explicit Data(const Options& options)
      : batch_(options.integer("batch")), planted_(options.boolean("planted")) {
    for (const std::string_view text : options.texts("fields")) {
      const auto words = split(text, ':');
      std::vector<std::int64_t> extents;
      if (words.size() > 2 && !words[2].empty()) {
        for (const std::string_view extent : split(words[2], 'x')) extents.push_back(whole_number(extent));
      }
      info_.fields.push_back({std::string(words[0]), words.at(1) == "real" ? DType::kF32 : DType::kI32,
                              Shape(std::span<const std::int64_t>(extents))});
      below_.push_back(words.size() > 3 ? static_cast<std::uint64_t>(whole_number(words[3])) : 2);
    }
    for (const std::string_view text : options.texts("attributes")) {
      const auto words = split(text, '=');
      info_.attributes.push_back({std::string(words[0]), whole_number(words.at(1))});
    }
    info_.train_samples = kTrainSamples;
    info_.val_samples = 8 * batch_;
  }

  void open(std::uint64_t) override {}
  std::int64_t batch() const override { return batch_; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      for (std::int64_t b = 0; b < batch_; ++b) {
        const bool padding = b >= request.count;
        const std::int64_t index = request.first + (padding ? 0 : b);
        const std::int64_t sample = request.split == Split::kTrain
                                        ? index % kTrainSamples
                                        : kTrainSamples + index % info_.val_samples;
        fill(i, sample, fields[i], b, padding && i + 1 == fields.size());
      }
    }
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  /// `target` of a padded sample: a value that no loss counts.
  void fill(std::size_t field, std::int64_t sample, const TensorView& view, std::int64_t b,
            bool target) const {
    const RandomKey key = random_key(11, info_.fields[field].name);
    const RandomKey first = random_key(11, info_.fields[0].name);
    const std::int64_t size = info_.fields[field].shape.elements();
    const bool follows =
        planted_ && field > 0 && field + 1 == info_.fields.size() && dtype_is_real(info_.fields[0].dtype);
    const auto step = static_cast<std::uint64_t>(sample);
    for (std::int64_t j = 0; j < size; ++j) {
      const std::int64_t at = b * size + j;
      const auto draw = static_cast<std::uint64_t>(j);
      if (!dtype_is_real(view.dtype)) {
        const auto number = static_cast<std::int32_t>(random_below(key, step, draw, below_[field]));
        view.as<std::int32_t>()[at] = target ? -1 : number;
        continue;
      }
      double value = random_normal(key, step, draw);
      if (follows) value = 0.5 * random_normal(first, step, 0) - random_normal(first, step, 1);
      if (target) value = std::numeric_limits<double>::quiet_NaN();
      view.dtype == DType::kF64 ? view.as<double>()[at] = value
                                : view.as<float>()[at] = static_cast<float>(value);
    }
  }

  std::int64_t batch_;
  bool planted_;
  std::vector<std::uint64_t> below_;
  DataInfo info_;
};

class Net final : public Model {
 public:
  static constexpr ComponentInfo kInfo{.id = "conformance_net",
                                       .summary = "two linear layers and a squared error"};
  explicit Net(const Options&) {}
  GraphSpec build(const DataInfo&) override {
    return {{{"fc1", "linear", {"x"}, {{"features", std::int64_t{16}}}},
             {"act", "gelu", {"fc1"}, {}},
             {"fc2", "linear", {"act"}, {{"features", std::int64_t{1}}}},
             {"loss", "mse", {"fc2", "t"}, {}}}};
  }
  void* query(std::string_view) override { return nullptr; }
};

class Anything final : public Model {
 public:
  static constexpr ComponentInfo kInfo{.id = "conformance_anything", .summary = "a loss of all fields"};
  explicit Anything(const Options&) {}
  GraphSpec build(const DataInfo& data) override {
    NodeSpec loss{"loss", "conformance_absorb", {}, {}};
    for (const DataField& field : data.fields) loss.inputs.push_back(field.name);
    return {{loss}};
  }
  void* query(std::string_view) override { return nullptr; }
};

/// Sends the signal as a scheduler does, and waits until the run has received it: a busy machine might
/// otherwise finish the run first.
void ask_to_stop() {
  ::kill(::getpid(), SIGTERM);
  sigset_t pending;
  for (int tries = 0; tries < 1000 && ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGTERM) == 1;
       ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // from received to reported
}

class EndingWatch final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("stop_after", "0"), option::integer("kill_after", "0"),
      option::integer("count_from", "0"), option::integer("count_to", "0")};
  static constexpr ComponentInfo kInfo{
      .id = "conformance_ending", .summary = "ends the run, counts allocations", .options = kOptions};
  explicit EndingWatch(const Options& options)
      : stop_after_(options.integer("stop_after")),
        kill_after_(options.integer("kill_after")),
        count_from_(options.integer("count_from")),
        count_to_(options.integer("count_to")) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override {
    const std::int64_t done = record.slot + 1;
    if (const AllocationWatch* watch = allocation_watch(); watch != nullptr && count_to_ > 0) {
      if (done == count_from_) watch->open();
      if (done == count_to_) watch->close();
    }
    if (kill_after_ > 0)  // so that a background save can end before the process does
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
    if (done == stop_after_) ask_to_stop();
    if (done == kill_after_) ::kill(::getpid(), SIGKILL);
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t stop_after_, kill_after_, count_from_, count_to_;
};

TENON_STATIC_PLUGIN(
    parts, PluginInfo{.id = "tenon.conformance", .version = "0.1.0", .summary = "parts of conformance runs"},
    Data, Absorb, Net, Anything, EndingWatch, WatchedSync, RefusingPrecision)

}  // namespace

const tenon_plugin_v1_t& world_plugin() {
  return parts;
}

}  // namespace tenon::conformance
