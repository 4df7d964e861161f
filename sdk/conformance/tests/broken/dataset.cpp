// Data sets that are wrong in one way each: numbers drawn by position, with one line changed.
#include <tenon/dataset.hpp>
#include <tenon/plugin.hpp>
#include <tenon/random.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace tenon;

constexpr std::int64_t kWidth = 3, kClasses = 4;

/// Correct: fields x f32 [3] and targets i32 [].
class Drawn : public Dataset {
 public:
  explicit Drawn(const Options&) {
    info_.fields = {{"x", DType::kF32, {kWidth}}, {"targets", DType::kI32, {}}};
    info_.attributes = {{"classes", kClasses}};
    info_.train_samples = 50;
    info_.val_samples = 10;
  }
  void open(std::uint64_t seed_order) override { key_ = random_key(seed_order, "drawn"); }
  std::int64_t batch() const override { return 4; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    for (std::int64_t i = 0; i < batch(); ++i) {
      float* const x = fields[0].as<float>() + i * kWidth;
      std::int32_t& target = fields[1].as<std::int32_t>()[i];
      if (i < request.count) {
        const std::int64_t index = position(request, i) + (request.split == Split::kVal ? 1 << 20 : 0);
        for (std::int64_t j = 0; j < kWidth; ++j)
          x[j] = static_cast<float>(
              random_normal(key_, static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(j)));
        target = label(index);
      } else {
        pad(x, target);
      }
    }
  }
  void* query(std::string_view) override { return nullptr; }

 protected:
  virtual std::int64_t position(const BatchRequest& request, std::int64_t i) { return request.first + i; }
  virtual std::int32_t label(std::int64_t index) {
    return static_cast<std::int32_t>(random_below(key_, static_cast<std::uint64_t>(index), 99, kClasses));
  }
  virtual void pad(float* x, std::int32_t& target) {
    std::fill_n(x, kWidth, 0.0f);
    target = -1;
  }

  DataInfo info_;

 private:
  RandomKey key_;
};

class NamesTwice final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "names_twice", .summary = "two fields called x"};
  explicit NamesTwice(const Options& options) : Drawn(options) { info_.fields[1].name = "x"; }
};

class CountsReads final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_reads", .summary = "a stream, not positions"};
  using Drawn::Drawn;
  std::int64_t position(const BatchRequest&, std::int64_t) override { return next_++; }

 private:
  std::int64_t next_ = 0;
};

class FirstOfBatch final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "first_of_batch", .summary = "samples depend on their batch"};
  using Drawn::Drawn;
  std::int64_t position(const BatchRequest& request, std::int64_t i) override {
    return 7 * request.first + i;
  }
};

class RepeatsInPadding final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "repeats_in_padding", .summary = "padding with targets"};
  using Drawn::Drawn;
  void pad(float* x, std::int32_t& target) override {
    Drawn::pad(x, target);
    target = 0;
  }
};

class LeavesPadding final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "leaves_padding", .summary = "what lay there before"};
  using Drawn::Drawn;
  void pad(float*, std::int32_t& target) override { target = -1; }
};

class OneTooMany final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "one_too_many", .summary = "writes after the field"};
  using Drawn::Drawn;
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    Drawn::read(request, fields);
    fields[1].as<std::int32_t>()[batch()] = -1;
  }
};

class OneCursor final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "one_cursor", .summary = "seek, then read"};
  using Drawn::Drawn;
  std::int64_t position(const BatchRequest& request, std::int64_t i) override {
    cursor_ = request.first + i;
    for (int turn = 0; turn < 20; ++turn) std::this_thread::yield();
    return cursor_;
  }

 private:
  volatile std::int64_t cursor_ = 0;
};

class CopiesFirst final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "copies_first", .summary = "a buffer per read"};
  using Drawn::Drawn;
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    const auto copy = std::make_unique<std::vector<TensorView>>(fields.begin(), fields.end());
    Drawn::read(request, *copy);
  }
};

class OneClassMore final : public Drawn {
 public:
  static constexpr ComponentInfo kInfo{.id = "one_class_more", .summary = "counts classes from 1"};
  using Drawn::Drawn;
  std::int32_t label(std::int64_t index) override { return Drawn::label(index) + 1; }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.dataset", .version = "1.0.0", .summary = "wrong data sets"}, NamesTwice,
             CountsReads, FirstOfBatch, RepeatsInPadding, LeavesPadding, OneTooMany, OneCursor, CopiesFirst,
             OneClassMore)
