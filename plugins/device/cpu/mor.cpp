// Mixtures of representations (family MorOps). Results equal kernels/reference/mor.hpp bit for bit, whatever
// the number of threads. Two passes over strips of rows: the first finds each block's span, the second rounds
// and measures (in the kernels). Both run over columns of a strip, with sums and scales per column, so that
// every partition is the same code. A strip's results are in scratch until one thread joins them in a fixed
// order.
#include "common.hpp"
#include "device_common/quantizers.hpp"

#include <tenon/kernels/mor.hpp>

#include <bit>
#include <cstring>

namespace tenon::cpu {
namespace {

using kernels::Bf16;
using kernels::Element;
using kernels::kMorStrip;

constexpr std::int64_t kChunk = 128;    ///< columns whose sums are on the stack
constexpr std::int16_t kNone = 0x7fff;  ///< no nonzero magnitude was found

/// Statistics of one block within one strip.
struct Partial {
  std::int16_t largest = 0, smallest = kNone;  ///< bits of a BF16
  std::int32_t non_zero = 0;
  double error[2] = {0, 0};
};

struct Block {
  float amax = 0, smallest = 0;
  float scales[2] = {1, 1};
  std::int64_t non_zero = 0;
  double error[2] = {0, 0};
  kernels::MorChoice choice = kernels::MorChoice::kKeep;
};

float float_of(std::int16_t magnitude) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(magnitude) << 16);
}

template <class S>
class CpuMorKernel final : public MorKernel {
 public:
  CpuMorKernel(const Kernels& kernels, const MorSpec& spec)
      : ops_(kernels.table->mor),
        spec_(spec),
        block_rows_(spec.block_rows > 0 ? spec.block_rows : std::max<std::int64_t>(spec.rows, 1)),
        block_columns_(spec.block_columns > 0 ? spec.block_columns : std::max<std::int64_t>(spec.columns, 1)),
        down_((spec.rows + block_rows_ - 1) / block_rows_),
        across_((spec.columns + block_columns_ - 1) / block_columns_),
        strips_per_block_((block_rows_ + kMorStrip - 1) / kMorStrip) {
    const std::int64_t whole = spec.rows / block_rows_, rest = spec.rows % block_rows_;
    strips_ = whole * strips_per_block_ + (rest + kMorStrip - 1) / kMorStrip;
  }

  std::size_t scratch_bytes() const override {
    return (strips_ * across_) * sizeof(Partial) + blocks() * sizeof(Block);
  }
  std::int64_t blocks() const override { return down_ * across_; }

  MorDecision run(TensorView x, TensorView values, TensorView choices, TensorView scratch) override {
    const std::int64_t n = spec_.rows * spec_.columns;
    Job job;
    job.x = checked<S>(x, n, kWhere, "x");
    job.out = reinterpret_cast<std::uint16_t*>(checked<Bf16>(values, n, kWhere, "values"));
    auto* chosen = checked_or_null<std::uint8_t>(choices, blocks(), kWhere, "choices");
    if (n > 0) device_arguments::check_scratch(scratch, scratch_bytes(), kWhere);
    job.blocks = static_cast<Block*>(scratch.data);
    job.partials = reinterpret_cast<Partial*>(job.blocks + blocks());

    MorDecision decision;
    find_spans(job, decision);
    if (decision.finite) {
      choose(job, decision);
      round(job);
      double error = 0;
      for (std::int64_t b = 0; b < blocks(); ++b) error += job.blocks[b].error[0];
      if (decision.non_zero > 0) decision.error = error / static_cast<double>(decision.non_zero);
    }
    const bool tensor = spec_.mode == MorMode::kTensor;
    if (!decision.finite || (tensor && decision.error > spec_.threshold)) {
      keep(job);
    } else if (tensor) {
      decision.tensor = MorChoice::kE4M3;
    }
    report(job, decision, chosen);
    return decision;
  }

 private:
  static constexpr const char* kWhere = "mor";

  struct Job {
    const S* x = nullptr;
    std::uint16_t* out = nullptr;
    Block* blocks = nullptr;
    Partial* partials = nullptr;
  };
  struct Strip {
    std::int64_t block_row = 0, row = 0, end = 0;
  };

  Strip strip(std::int64_t index) const {
    const std::int64_t block_row = index / strips_per_block_;
    const std::int64_t row = block_row * block_rows_ + index % strips_per_block_ * kMorStrip;
    const std::int64_t end = std::min({row + kMorStrip, (block_row + 1) * block_rows_, spec_.rows});
    return {block_row, row, end};
  }

  /// Strips per task: enough elements to be worth it.
  std::int64_t strips_per_task() const {
    const std::int64_t height = std::min(block_rows_, kMorStrip);
    return std::max<std::int64_t>(1, kFlatBlock / std::max<std::int64_t>(1, height * spec_.columns));
  }

  template <class Body>
  void for_strips(Body&& body) const {
    parallel_for(strips_, strips_per_task(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s) body(s, strip(s));
    });
  }

  /// n elements as BF16: themselves, or rounded into `buffer`.
  static const std::uint16_t* as_bf16(const S* x, std::int64_t n, std::uint16_t* buffer) {
    if constexpr (std::is_same_v<S, Bf16>) {
      return reinterpret_cast<const std::uint16_t*>(x);
    } else {
      for (std::int64_t j = 0; j < n; ++j) buffer[j] = kernels::to_bf16(x[j]).bits;
      return buffer;
    }
  }

  void find_spans(const Job& job, MorDecision& decision) const {
    for_strips([&](std::int64_t s, const Strip& at) {
      Partial* partials = job.partials + s * across_;
      std::fill_n(partials, across_, Partial{});
      for (std::int64_t column = 0; column < spec_.columns; column += kChunk) {
        const std::int64_t n = std::min(kChunk, spec_.columns - column);
        std::int16_t largest[kChunk] = {}, smallest[kChunk], non_zero[kChunk] = {};
        std::uint16_t buffer[kChunk];
        std::fill_n(smallest, kChunk, kNone);
        for (std::int64_t row = at.row; row < at.end; ++row) {
          const std::uint16_t* x = as_bf16(job.x + row * spec_.columns + column, n, buffer);
          for (std::int64_t j = 0; j < n; ++j) {
            const auto magnitude = static_cast<std::int16_t>(x[j] & 0x7fff);
            const std::int16_t counted = magnitude == 0 ? kNone : magnitude;
            largest[j] = magnitude > largest[j] ? magnitude : largest[j];
            smallest[j] = counted < smallest[j] ? counted : smallest[j];
            non_zero[j] = static_cast<std::int16_t>(non_zero[j] + (magnitude != 0 ? 1 : 0));
          }
        }
        for (std::int64_t j = 0; j < n; ++j) {
          Partial& partial = partials[(column + j) / block_columns_];
          partial.largest = std::max(partial.largest, largest[j]);
          partial.smallest = std::min(partial.smallest, smallest[j]);
          partial.non_zero += non_zero[j];
        }
      }
    });
    std::fill_n(job.blocks, blocks(), Block{});
    std::int16_t largest = 0;
    for (std::int64_t s = 0; s < strips_; ++s) {
      for (std::int64_t c = 0; c < across_; ++c) {
        const Partial& partial = job.partials[s * across_ + c];
        Block& block = job.blocks[strip(s).block_row * across_ + c];
        block.amax = std::max(block.amax, float_of(std::min<std::int16_t>(partial.largest, 0x7f80)));
        if (partial.smallest != kNone) {
          const float smallest = float_of(partial.smallest);
          block.smallest = block.non_zero == 0 ? smallest : std::min(block.smallest, smallest);
        }
        block.non_zero += partial.non_zero;
        decision.non_zero += partial.non_zero;
        largest = std::max(largest, partial.largest);
      }
    }
    decision.amax = float_of(largest);
    decision.finite = largest < 0x7f80;
  }

  void choose(const Job& job, const MorDecision& decision) const {
    const auto mode = static_cast<kernels::MorMode>(spec_.mode);
    const auto scale_of = [&](const Block& block, kernels::MorChoice choice) {
      return kernels::mor_scale(static_cast<kernels::MorStrategy>(spec_.strategy), block.amax, decision.amax,
                                kernels::layout_of(kernels::mor_element(choice)).largest);
    };
    bool doubtful = false;
    for (std::int64_t b = 0; b < blocks(); ++b) {
      Block& block = job.blocks[b];
      block.choice = kernels::MorChoice::kE4M3;
      if (spec_.mode != MorMode::kTensor)
        block.choice = kernels::mor_by_span(kernels::mor_span(block.amax, block.smallest), mode, spec_.e2m3);
      block.scales[0] = scale_of(block, block.choice);
      if (spec_.mode == MorMode::kQuantError && block.choice == kernels::MorChoice::kE5M2) {
        block.scales[1] = block.scales[0];
        block.scales[0] = scale_of(block, kernels::MorChoice::kE4M3);
        doubtful = true;
      }
    }
    if (!doubtful) return;
    measure(job, 0, Element::kE4M3);
    measure(job, 1, Element::kE5M2);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      Block& block = job.blocks[b];
      if (block.choice == kernels::MorChoice::kE5M2)
        block.choice = kernels::mor_by_error(block.error[0], block.error[1]);
    }
  }

  /// Measures the errors of the undecided blocks under one format.
  void measure(const Job& job, int which, Element element) const {
    for_strips([&](std::int64_t s, const Strip& at) {
      const Block* blocks = job.blocks + at.block_row * across_;
      for (std::int64_t c = 0; c < across_; ++c) {
        if (blocks[c].choice == kernels::MorChoice::kE5M2)
          round_run<false>(job, element, at, s, c, c + 1, which);
      }
    });
    join(job, which);
  }

  /// Rounds blocks to their chosen formats.
  void round(const Job& job) const {
    for_strips([&](std::int64_t s, const Strip& at) {
      const Block* blocks = job.blocks + at.block_row * across_;
      for (std::int64_t c = 0; c < across_;) {
        std::int64_t end = c + 1;
        while (end < across_ && blocks[end].choice == blocks[c].choice) ++end;
        if (blocks[c].choice == kernels::MorChoice::kKeep) {
          copy(job, at, c * block_columns_, std::min(spec_.columns, end * block_columns_));
          for (std::int64_t k = c; k < end; ++k) job.partials[s * across_ + k].error[0] = 0;
        } else {
          round_run<true>(job, kernels::mor_element(blocks[c].choice), at, s, c, end, 0);
        }
        c = end;
      }
    });
    join(job, 0);
  }

  /// Blocks [first, last) of a strip's row of blocks, all in one format.
  template <bool kStore>
  void round_run(const Job& job, Element element, const Strip& at, std::int64_t s, std::int64_t first,
                 std::int64_t last, int which) const {
    const Block* blocks = job.blocks + at.block_row * across_;
    Partial* partials = job.partials + s * across_;
    for (std::int64_t c = first; c < last; ++c) partials[c].error[which] = 0;
    const std::int64_t end = std::min(spec_.columns, last * block_columns_);
    for (std::int64_t column = first * block_columns_; column < end; column += kChunk) {
      const std::int64_t n = std::min(kChunk, end - column);
      float scales[kChunk], errors[kChunk] = {};
      for (std::int64_t j = 0; j < n; ++j) scales[j] = blocks[(column + j) / block_columns_].scales[which];
      kernels::MorStripArgs strip;
      strip.columns = n;
      strip.element = element;
      strip.scales = scales;
      strip.errors = errors;
      const auto from = [&](std::int64_t row) { return row * spec_.columns + column; };
      Bf16* out = kStore ? reinterpret_cast<Bf16*>(job.out) : nullptr;
      strip.stride = strip.out_stride = spec_.columns;
      if constexpr (std::is_same_v<S, Bf16>) {
        strip.x = job.x + from(at.row);
        strip.rows = at.end - at.row;
        strip.out = kStore ? out + from(at.row) : nullptr;
        ops_.strip(strip);
      } else {
        std::uint16_t buffer[kChunk];
        strip.rows = 1;
        for (std::int64_t row = at.row; row < at.end; ++row) {
          strip.x = reinterpret_cast<const Bf16*>(as_bf16(job.x + from(row), n, buffer));
          strip.out = kStore ? out + from(row) : nullptr;
          ops_.strip(strip);
        }
      }
      for (std::int64_t j = 0; j < n; ++j)
        partials[(column + j) / block_columns_].error[which] += static_cast<double>(errors[j]);
    }
  }

  void join(const Job& job, int which) const {
    for (std::int64_t b = 0; b < blocks(); ++b) job.blocks[b].error[which] = 0;
    for (std::int64_t s = 0; s < strips_; ++s) {
      Block* blocks = job.blocks + strip(s).block_row * across_;
      for (std::int64_t c = 0; c < across_; ++c)
        blocks[c].error[which] += job.partials[s * across_ + c].error[which];
    }
  }

  void copy(const Job& job, const Strip& at, std::int64_t column, std::int64_t end) const {
    std::uint16_t buffer[kChunk];
    for (std::int64_t row = at.row; row < at.end; ++row) {
      for (std::int64_t j = column; j < end; j += kChunk) {
        const std::int64_t n = std::min(kChunk, end - j), place = row * spec_.columns + j;
        std::memcpy(job.out + place, as_bf16(job.x + place, n, buffer), static_cast<std::size_t>(n) * 2);
      }
    }
  }

  void keep(const Job& job) const {
    for_strips([&](std::int64_t, const Strip& at) { copy(job, at, 0, spec_.columns); });
    for (std::int64_t b = 0; b < blocks(); ++b) job.blocks[b].choice = kernels::MorChoice::kKeep;
  }

  void report(const Job& job, MorDecision& decision, std::uint8_t* chosen) const {
    for (std::int64_t b = 0; b < blocks(); ++b) {
      const std::int64_t row = b / across_ * block_rows_, column = b % across_ * block_columns_;
      const auto choice = static_cast<std::size_t>(job.blocks[b].choice);
      ++decision.blocks[choice];
      decision.elements[choice] +=
          std::min(block_rows_, spec_.rows - row) * std::min(block_columns_, spec_.columns - column);
      if (chosen != nullptr) chosen[b] = static_cast<std::uint8_t>(choice);
    }
  }

  const kernels::MorOps& ops_;
  MorSpec spec_;
  std::int64_t block_rows_, block_columns_, down_, across_, strips_per_block_, strips_ = 0;
};

class CpuMorOps final : public MorOps {
 public:
  explicit CpuMorOps(const Kernels& kernels) : kernels_(kernels) {}
  std::unique_ptr<MorKernel> prepare(const MorSpec& spec) override {
    device_quantizers::check_mor(spec);
    if (spec.input == DType::kBF16) return std::make_unique<CpuMorKernel<Bf16>>(kernels_, spec);
    return std::make_unique<CpuMorKernel<float>>(kernels_, spec);
  }

 private:
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<MorOps> make_mor_ops(const Kernels& kernels) {
  return std::make_unique<CpuMorOps>(kernels);
}

}  // namespace tenon::cpu
