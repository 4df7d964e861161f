// Arguments of causal attention (family Attention), over whole sequences and to kept keys: the check of a
// spec, and the tensors of a call as pointers. Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/attention.hpp>
#include <tenon/kernels/cached_attention.hpp>
#include <tenon/ops/attention.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace tenon::device_arguments {

inline void check_attention(const AttentionSpec& spec) {
  if (spec.batch < 0 || spec.time < 0 || spec.heads <= 0 || spec.head_width <= 0 || spec.window < 0) {
    refuse_config("attention needs heads and head_width of at least 1 and window of at least 0, found " +
                  std::to_string(spec.heads) + ", " + std::to_string(spec.head_width) + " and " +
                  std::to_string(spec.window));
  }
  if (spec.kv_heads < 0 || (spec.kv_heads > 0 && spec.heads % spec.kv_heads != 0)) {
    refuse_config("attention needs kv_heads that divide the heads, found kv_heads " +
                  std::to_string(spec.kv_heads) + " and heads " + std::to_string(spec.heads));
  }
  if (spec.keys != 0 && spec.keys < spec.time) {
    refuse_config("attention needs at least as many keys as queries, found keys " +
                  std::to_string(spec.keys) + " and time " + std::to_string(spec.time));
  }
}

/// The kernels' arguments for a checked spec whose rows are contiguous.
template <class S>
class AttentionShape {
 public:
  explicit AttentionShape(const AttentionSpec& spec) {
    args_.batch = spec.batch;
    args_.time = spec.time;
    args_.heads = spec.heads;
    args_.d_head = spec.head_width;
    args_.kv_heads = spec.kv_heads > 0 ? spec.kv_heads : spec.heads;
    args_.keys = spec.keys > 0 ? spec.keys : spec.time;
    args_.window = spec.window;
    args_.scale = static_cast<kernels::Arith<S>>(spec.logit_scale);
    args_.q_row_stride = args_.out_row_stride = args_.dq_row_stride = spec.heads * spec.head_width;
    args_.kv_row_stride = args_.dkv_row_stride = args_.kv_heads * spec.head_width;
  }

  /// Arguments without pointers.
  const kernels::AttentionArgs<S>& args() const { return args_; }
  std::int64_t elements() const { return args_.batch * args_.time * args_.q_row_stride; }
  std::int64_t key_elements() const { return args_.batch * args_.keys * args_.kv_row_stride; }
  std::int64_t queries() const { return args_.batch * args_.heads * args_.time; }

  kernels::AttentionArgs<S> forward(const TensorView& q, const TensorView& k, const TensorView& v,
                                    const AttentionMasks& masks, const TensorView& y, const TensorView& lse,
                                    const char* where) const {
    auto args = args_;
    args.q = checked<S>(q, elements(), where, "q");
    args.k = checked<S>(k, key_elements(), where, "k");
    args.v = checked<S>(v, key_elements(), where, "v");
    const std::int64_t keys = args.batch * args.keys;
    args.key_mask = checked_or_null<std::uint8_t>(masks.keys, keys, where, "masks.keys");
    args.documents = checked_or_null<std::int32_t>(masks.documents, keys, where, "masks.documents");
    args.out = checked<S>(y, elements(), where, "y");
    args.lse = checked<kernels::Arith<S>>(lse, queries(), where, "lse");
    return args;
  }

  /// Completes the arguments of forward().
  void backward(kernels::AttentionArgs<S>& args, const TensorView& dy, const TensorView& dq,
                const TensorView& dk, const TensorView& dv, const char* where) const {
    args.dout = checked<S>(dy, elements(), where, "dy");
    args.dq = checked<S>(dq, elements(), where, "dq");
    args.dk = checked<S>(dk, key_elements(), where, "dk");
    args.dv = checked<S>(dv, key_elements(), where, "dv");
  }

 private:
  kernels::AttentionArgs<S> args_;
};

inline void check_cached_attention(const CachedAttentionSpec& spec) {
  if (spec.batch < 0 || spec.time < 0 || spec.heads <= 0 || spec.head_width <= 0 || spec.window < 0 ||
      spec.positions < 1) {
    refuse_config(
        "cached attention needs heads, head_width and positions of at least 1 and window of at least 0, "
        "found " +
        std::to_string(spec.heads) + ", " + std::to_string(spec.head_width) + ", " +
        std::to_string(spec.positions) + " and " + std::to_string(spec.window));
  }
  if (spec.kv_heads < 0 || (spec.kv_heads > 0 && spec.heads % spec.kv_heads != 0)) {
    refuse_config("cached attention needs kv_heads that divide the heads, found kv_heads " +
                  std::to_string(spec.kv_heads) + " and heads " + std::to_string(spec.heads));
  }
}

/// Arguments of a call on kept keys, row by row of the batch, for a checked spec.
template <class S>
class CachedAttentionShape {
 public:
  explicit CachedAttentionShape(const CachedAttentionSpec& spec)
      : batch_(spec.batch), time_(spec.time), documents_(spec.documents) {
    args_.heads = spec.heads;
    args_.d_head = spec.head_width;
    args_.kv_heads = spec.kv_heads > 0 ? spec.kv_heads : spec.heads;
    args_.positions = spec.positions;
    args_.window = spec.window;
    args_.scale = static_cast<kernels::Arith<S>>(spec.logit_scale);
    sorted_.resize(static_cast<std::size_t>(batch_));
  }

  std::int64_t batch() const { return batch_; }
  std::int64_t time() const { return time_; }
  std::int64_t width() const { return args_.heads * args_.d_head; }
  std::int64_t kept_width() const { return args_.kv_heads * args_.d_head; }
  /// Keys, values and document numbers; the next sequence begins at whole elements.
  std::int64_t sequence_bytes() const {
    constexpr std::int64_t kElement = sizeof(S);
    const std::int64_t numbers = documents_ ? args_.positions * std::int64_t{sizeof(std::int32_t)} : 0;
    return 2 * args_.positions * kept_width() * kElement + (numbers + kElement - 1) / kElement * kElement;
  }
  /// Arguments of a row that has the most places, at the end of its sequence.
  kernels::CachedAttentionArgs<S> largest() const {
    auto args = args_;
    args.count = std::min(time_, args_.positions);
    args.first = args_.positions - args.count;
    return args;
  }

  /// Checks the tensors and rows of a call, for the functions below.
  void take(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& documents,
            const CachedRows& rows, const TensorView& state, const TensorView& y, const char* where) {
    const std::int64_t places = batch_ * time_;
    args_.q = checked<S>(q, places * width(), where, "q");
    args_.k = checked<S>(k, places * kept_width(), where, "k");
    args_.v = checked<S>(v, places * kept_width(), where, "v");
    args_.documents = documents_ ? checked<std::int32_t>(documents, places, where, "documents") : nullptr;
    args_.out = checked<S>(y, places * width(), where, "y");
    const std::int64_t bytes = sequence_bytes(), sequences = state.elements() / bytes;
    state_ = checked<std::uint8_t>(state, sequences * bytes, where, "state");
    rows_ = rows;
    check_rows(sequences, where);
  }

  /// The tensors of the whole batch, without those of a sequence.
  const kernels::CachedAttentionArgs<S>& args() const { return args_; }
  /// Places of a row that count.
  std::int64_t count(std::int64_t row) const { return at(rows_.count, row); }
  std::int64_t first(std::int64_t row) const { return at(rows_.first, row); }
  /// Arguments of the kernels for a row.
  kernels::CachedAttentionArgs<S> args(std::int64_t row) const {
    auto args = args_;
    args.first = first(row), args.count = count(row);
    args.q += row * time_ * width();
    args.k += row * time_ * kept_width();
    args.v += row * time_ * kept_width();
    args.out += row * time_ * width();
    if (args.documents != nullptr) args.documents += row * time_;
    const std::int64_t elements = args_.positions * kept_width();
    std::uint8_t* const sequence = state_ + at(rows_.kept, row) * sequence_bytes();
    args.keys = reinterpret_cast<S*>(sequence);
    args.values = args.keys + elements;
    if (documents_) args.kept_documents = reinterpret_cast<std::int32_t*>(args.values + elements);
    return args;
  }

 private:
  static std::int64_t at(std::span<const std::int64_t> numbers, std::int64_t row) {
    return numbers[static_cast<std::size_t>(row)];
  }

  void check_rows(std::int64_t sequences, const char* where) {
    const auto entries = static_cast<std::size_t>(batch_);
    if (rows_.first.size() != entries || rows_.count.size() != entries || rows_.kept.size() != entries) {
      refuse(where, "rows have " + std::to_string(rows_.first.size()) + ", " +
                        std::to_string(rows_.count.size()) + " and " + std::to_string(rows_.kept.size()) +
                        " entries (first, count, kept), expected " + std::to_string(batch_) + " each");
    }
    std::size_t going = 0;
    for (std::int64_t row = 0; row < batch_; ++row) {
      if (count(row) < 0 || count(row) > time_ || first(row) < 0 ||
          first(row) > args_.positions - count(row)) {
        refuse(where, "row " + std::to_string(row) + " has " + std::to_string(count(row)) +
                          " places from position " + std::to_string(first(row)) + " on, expected at most " +
                          std::to_string(time_) + " places within " + std::to_string(args_.positions) +
                          " positions");
      }
      if (count(row) == 0) continue;
      if (at(rows_.kept, row) < 0 || at(rows_.kept, row) >= sequences) {
        refuse(where, "row " + std::to_string(row) + " goes on with sequence " +
                          std::to_string(at(rows_.kept, row)) + ", expected one of the " +
                          std::to_string(sequences) + " in the state");
      }
      sorted_[going++] = at(rows_.kept, row);
    }
    std::sort(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(going));
    const auto end = sorted_.begin() + static_cast<std::ptrdiff_t>(going);
    const auto twice = std::adjacent_find(sorted_.begin(), end);
    if (twice != end)
      refuse(where, "two rows go on with sequence " + std::to_string(*twice) + ", expected one row for each");
  }

  std::int64_t batch_, time_;
  bool documents_;
  kernels::CachedAttentionArgs<S> args_;
  std::uint8_t* state_ = nullptr;
  CachedRows rows_;
  std::vector<std::int64_t> sorted_;  ///< room to compare the sequences of a call
};

}  // namespace tenon::device_arguments
