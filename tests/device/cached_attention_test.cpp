// Attention to kept keys: batches of sequences of different length, in passes of any length, against the
// forward pass over each whole sequence (property N10), which attention_test.cpp checks against the formulas.
#include "device_test.hpp"

#include <tenon/ops/attention.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::testing::cached_attention_test {
namespace {

using Bytes = std::vector<std::byte>;

/// A sequence's numbers by position.
struct Sequence {
  std::int64_t length;
  std::vector<double> q, k, v, documents;
};

struct Case {
  CachedAttentionSpec spec;  ///< but batch and time
  std::vector<std::int64_t> lengths;
};
const Case kCases[] = {
    {{.heads = 1, .head_width = 1, .positions = 1}, {1}},
    {{.heads = 4, .head_width = 20, .kv_heads = 2, .positions = 150, .logit_scale = 0.25}, {70, 3, 129}},
    {{.heads = 3, .head_width = 33, .kv_heads = 1, .positions = 81, .window = 7, .logit_scale = 0.2},
     {80, 81}},
    {{.heads = 2, .head_width = 16, .positions = 65, .logit_scale = 0.25, .documents = true}, {65, 17, 64}},
    {{.heads = 2,
      .head_width = 130,
      .kv_heads = 1,
      .positions = 70,
      .window = 30,
      .logit_scale = 0.1,
      .documents = true},
     {69, 40}},
};

std::int64_t width(const CachedAttentionSpec& s) {
  return s.heads * s.head_width;
}
std::int64_t kept_width(const CachedAttentionSpec& s) {
  return (s.kv_heads > 0 ? s.kv_heads : s.heads) * s.head_width;
}

Sequence make_sequence(const CachedAttentionSpec& s, std::int64_t length, int number) {
  const std::string name = "sequence " + std::to_string(number);
  Sequence sequence{length, numbers(length * width(s), name + " q", s.dtype),
                    numbers(length * kept_width(s), name + " k", s.dtype),
                    numbers(length * kept_width(s), name + " v", s.dtype),
                    integers(length, 12, name + " documents")};
  // Documents of 12 places on average; numbers ascend, with gaps.
  double document = -3;
  for (double& begins : sequence.documents) begins = document += begins == 0 ? 2 : 0;
  return sequence;
}

std::vector<Sequence> make_sequences(const CachedAttentionSpec& s, const std::vector<std::int64_t>& lengths) {
  std::vector<Sequence> sequences;
  for (const std::int64_t length : lengths)
    sequences.push_back(make_sequence(s, length, static_cast<int>(sequences.size())));
  return sequences;
}

class CachedAttentionFamily : public OnEveryChoice {
 protected:
  Attention& family() { return device_.family<Attention>(); }

  Owned scratch(std::size_t bytes) { return {device_, Shape{static_cast<std::int64_t>(bytes)}, DType::kU8}; }

  /// The forward pass over a whole sequence.
  Bytes whole(const CachedAttentionSpec& s, const Sequence& sequence) {
    AttentionSpec spec{.batch = 1, .time = sequence.length, .heads = s.heads, .head_width = s.head_width};
    spec.kv_heads = s.kv_heads, spec.window = s.window, spec.logit_scale = s.logit_scale;
    spec.dtype = s.dtype;
    const Shape shape{1, sequence.length, width(s)}, kept{1, sequence.length, kept_width(s)};
    const Owned q(device_, shape, s.dtype, sequence.q), k(device_, kept, s.dtype, sequence.k),
        v(device_, kept, s.dtype, sequence.v), y(device_, shape, s.dtype),
        lse(device_, Shape{1, s.heads, sequence.length}, arithmetic(s.dtype)),
        documents(device_, Shape{1, sequence.length}, DType::kI32, sequence.documents);
    AttentionMasks masks;
    if (s.documents) masks.documents = documents;
    const auto kernel = family().prepare(spec);
    kernel->forward(q, k, v, masks, y, lse, scratch(kernel->scratch_bytes()));
    return y.bytes();
  }

  /// A pass: for each row of the batch the sequence, and how many places it goes on by.
  struct Going {
    std::size_t sequence;
    std::int64_t count;
  };
  /// Outputs of the sequences, grown pass by pass. Sequence i is kept at i + 1 of as many and two more.
  class Passes {
   public:
    Passes(CachedAttentionFamily& test, CachedAttentionSpec spec, const std::vector<Sequence>& sequences)
        : test_(test), spec_(spec), sequences_(sequences), first_(sequences.size()), out_(sequences.size()) {
      spec_.batch = spec_.time = 1;
      const std::int64_t bytes = test_.family().prepare_cached(spec_)->sequence_bytes();
      state_ = std::make_unique<Owned>(
          test_.device_, Shape{static_cast<std::int64_t>(sequences.size()) + 2, bytes}, DType::kU8);
    }

    /// All rows take `time` places, of which some are padding.
    void run(const std::vector<Going>& rows, std::int64_t time) {
      Device& device = test_.device_;
      spec_.batch = static_cast<std::int64_t>(rows.size());
      spec_.time = time;
      const auto kernel = test_.family().prepare_cached(spec_);
      const auto places = [&](auto member, std::int64_t columns) {
        std::vector<double> all(rows.size() * time * columns, 7);  // padding
        for (std::size_t row = 0; row < rows.size(); ++row) {
          const std::vector<double>& from = sequences_[rows[row].sequence].*member;
          const auto begin = from.begin() + first_[rows[row].sequence] * columns;
          std::copy(begin, begin + rows[row].count * columns, all.begin() + row * time * columns);
        }
        return all;
      };
      const Shape shape{spec_.batch, time, width(spec_)}, kept_shape{spec_.batch, time, kept_width(spec_)};
      const Owned q(device, shape, spec_.dtype, places(&Sequence::q, width(spec_))),
          k(device, kept_shape, spec_.dtype, places(&Sequence::k, kept_width(spec_))),
          v(device, kept_shape, spec_.dtype, places(&Sequence::v, kept_width(spec_))),
          documents(device, Shape{spec_.batch, time}, DType::kI32, places(&Sequence::documents, 1)),
          y(device, shape, spec_.dtype);
      std::vector<std::int64_t> first, count, kept;
      for (const Going& row : rows) {
        first.push_back(first_[row.sequence]);
        count.push_back(row.count);
        kept.push_back(static_cast<std::int64_t>(row.sequence) + 1);
      }
      const Owned scratch = test_.scratch(kernel->scratch_bytes());
      kernel->forward(q, k, v, spec_.documents ? TensorView(documents) : TensorView{}, {first, count, kept},
                      *state_, y, scratch);
      const Bytes found = y.bytes();
      const std::int64_t place = dtype_bytes(spec_.dtype, width(spec_));
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const auto begin = found.begin() + row * time * place, padding = begin + rows[row].count * place,
                   end = begin + time * place;
        Bytes& out = out_[rows[row].sequence];
        out.insert(out.end(), begin, padding);
        EXPECT_EQ(std::count(padding, end, std::byte{0}), end - padding) << "padding of row " << row;
        first_[rows[row].sequence] += rows[row].count;
      }
    }

    /// What remains of all sequences, in passes of at most `most` places, in the order `order`.
    void run_all(std::int64_t most, const std::vector<std::size_t>& order) {
      for (;;) {
        std::vector<Going> rows;
        std::int64_t all = 0;
        for (const std::size_t i : order) {
          rows.push_back({i, std::min(most, sequences_[i].length - first_[i])});
          all += rows.back().count;
        }
        if (all == 0) return;
        run(rows, most);
      }
    }
    void begin_again(std::size_t sequence) {
      first_[sequence] = 0;
      out_[sequence].clear();
    }
    const Bytes& out(std::size_t sequence) const { return out_[sequence]; }
    Bytes state(std::size_t kept) const {
      const Bytes all = state_->bytes();
      const std::size_t bytes = all.size() / (sequences_.size() + 2);
      return {all.begin() + kept * bytes, all.begin() + (kept + 1) * bytes};
    }

   private:
    CachedAttentionFamily& test_;
    CachedAttentionSpec spec_;
    const std::vector<Sequence>& sequences_;
    std::vector<std::int64_t> first_;
    std::vector<Bytes> out_;
    std::unique_ptr<Owned> state_;
  };

  /// Tiles of bf16 round weights once more, and are not used for kept keys.
  bool rounds_otherwise(DType dtype) const {
    return dtype == DType::kBF16 && device_.kernel_choice().substr(0, 3) == "amx";
  }
  void expect_whole(const CachedAttentionSpec& spec, const Bytes& found, const Bytes& whole,
                    const std::string& what) {
    if (!rounds_otherwise(spec.dtype)) {
      EXPECT_TRUE(found == whole) << what << ": other bits";
      return;
    }
    const Shape shape{static_cast<std::int64_t>(whole.size() / 2)};
    const Owned a(device_, shape, spec.dtype), b(device_, shape, spec.dtype);
    const auto values = [&](const Owned& tensor, const Bytes& bytes) {
      device_.copy({const_cast<std::byte*>(bytes.data()), shape, spec.dtype, MemorySpace::kHost}, tensor);
      return tensor.values();
    };
    EXPECT_LE(relative_error(values(a, found), values(b, whole)), 4 * unit(spec.dtype)) << what;
  }
};

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

std::string text_of(const CachedAttentionSpec& s) {
  return std::string(dtype_name(s.dtype)) + " heads " + std::to_string(s.heads) + " of " +
         std::to_string(s.kv_heads) + " width " + std::to_string(s.head_width) + " window " +
         std::to_string(s.window) + (s.documents ? " documents" : "");
}

TEST_P(CachedAttentionFamily, N10_PassesMatchTheWholeSequence) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
    for (const Case& c : kCases) {
      CachedAttentionSpec spec = c.spec;
      spec.dtype = dtype;
      const auto sequences = make_sequences(spec, c.lengths);
      std::vector<Bytes> wholes;
      for (const Sequence& sequence : sequences) wholes.push_back(whole(spec, sequence));
      // As a prompt and one place at a time, and in passes of one length.
      for (const std::int64_t prompt : {0, 40})
        for (const std::int64_t most : {1, 13, 66}) {
          if (prompt > 0 && most > 1) continue;
          set_parallel_threads(static_cast<int>(most % 3) + 1);
          Passes passes(*this, spec, sequences);
          if (prompt > 0) {
            std::vector<Going> rows;
            for (std::size_t i = 0; i < sequences.size(); ++i)
              rows.push_back({i, std::min(prompt, sequences[i].length)});
            passes.run(rows, prompt);
          }
          passes.run_all(most, in_order(sequences.size()));
          for (std::size_t i = 0; i < sequences.size(); ++i)
            expect_whole(spec, passes.out(i), wholes[i],
                         text_of(spec) + ", sequence " + std::to_string(i) + ", prompt of " +
                             std::to_string(prompt) + ", passes of " + std::to_string(most));
        }
    }
}

// For equal splits a sequence has the same bits alone and as any row of any batch, with any number of
// threads.
TEST_P(CachedAttentionFamily, N10_ARowDependsOnNoOtherRow) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t most : {1, 9}) {
      CachedAttentionSpec spec{.heads = 4, .head_width = 16, .kv_heads = 2, .positions = 90};
      spec.logit_scale = 0.25, spec.dtype = dtype;
      const auto sequences = make_sequences(spec, {75, 90, 5, 66, 70, 31});
      Passes alone(*this, spec, sequences), together(*this, spec, sequences), turned(*this, spec, sequences);
      for (std::size_t i = 0; i < sequences.size(); ++i) alone.run_all(most, {i});
      set_parallel_threads(2);
      together.run_all(most, in_order(sequences.size()));
      set_parallel_threads(3);
      turned.run_all(most, {4, 2, 0, 5, 3, 1});
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        EXPECT_TRUE(alone.out(i) == together.out(i)) << "sequence " << i << " in passes of " << most;
        EXPECT_TRUE(alone.out(i) == turned.out(i)) << "sequence " << i << " in passes of " << most;
      }
    }
}

TEST_P(CachedAttentionFamily, ASequenceBeginsAgainWhateverIsKept) {
  CachedAttentionSpec spec{.heads = 2, .head_width = 8, .positions = 70, .documents = true};
  const auto sequences = make_sequences(spec, {70, 66});
  Passes passes(*this, spec, sequences);
  passes.run_all(16, {0, 1});
  const Bytes before = passes.out(1), other = passes.out(0);
  passes.begin_again(1);
  passes.run_all(16, {1});
  EXPECT_TRUE(passes.out(1) == before);
}

TEST_P(CachedAttentionFamily, TouchesNoSequenceButThoseOfItsRows) {
  CachedAttentionSpec spec{.heads = 2, .head_width = 8, .positions = 65, .documents = true};
  const auto sequences = make_sequences(spec, {65, 65, 65});
  Passes passes(*this, spec, sequences);
  passes.run_all(33, in_order(3));
  std::vector<Bytes> before;
  for (std::size_t kept = 0; kept < 5; ++kept) before.push_back(passes.state(kept));
  passes.begin_again(1);
  passes.begin_again(2);
  passes.run({{1, 0}, {2, 4}}, 5);  // a row of padding keeps nothing
  for (const std::size_t kept : {0, 1, 2, 4})
    EXPECT_TRUE(passes.state(kept) == before[kept]) << "sequence " << kept;
}

// 2 x positions x key heads x width x bytes, and a number per position with documents.
TEST_P(CachedAttentionFamily, KeepsKeysValuesAndDocumentsAlone) {
  const auto bytes = [&](DType dtype, bool documents) {
    return family()
        .prepare_cached({.batch = 3,
                         .time = 4,
                         .heads = 6,
                         .head_width = 10,
                         .kv_heads = 2,
                         .positions = 100,
                         .dtype = dtype,
                         .documents = documents})
        ->sequence_bytes();
  };
  EXPECT_EQ(bytes(DType::kF32, false), 2 * 100 * 2 * 10 * 4);
  EXPECT_EQ(bytes(DType::kBF16, false), 2 * 100 * 2 * 10 * 2);
  EXPECT_EQ(bytes(DType::kBF16, true), 2 * 100 * 2 * 10 * 2 + 4 * 100);
  EXPECT_EQ(bytes(DType::kF64, true), 2 * 100 * 2 * 10 * 8 + 4 * 100);
}

TEST_P(CachedAttentionFamily, AllocatesNothingInAPass) {
  const CachedAttentionSpec spec{.batch = 2, .time = 2, .heads = 2, .head_width = 8, .positions = 8};
  const auto kernel = family().prepare_cached(spec);
  const Shape shape{2, 2, 16};
  const std::vector<double> x = numbers(shape.elements(), "x", DType::kF32);
  const Owned q(device_, shape, DType::kF32, x), y(device_, shape, DType::kF32),
      state(device_, Shape{2, kernel->sequence_bytes()}, DType::kU8),
      scratch(device_, Shape{static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8);
  const std::int64_t first[] = {0, 0}, count[] = {2, 1}, kept[] = {1, 0};
  // The reference writes its rows out.
  if (device_.kernel_choice() == "reference") return;
  expect_no_allocations(device_, [&] {
    kernel->forward(q, q, q, {}, {first, count, kept}, state, y, scratch);
  });
}

TEST_P(CachedAttentionFamily, RefusesWhatItCannotDo) {
  CachedAttentionSpec spec{.batch = 2, .time = 2, .heads = 6, .head_width = 4, .kv_heads = 4};
  spec.positions = 8;
  EXPECT_EQ(
      message_of([&] { family().prepare_cached(spec); }),
      device_says("cached attention needs kv_heads that divide the heads, found kv_heads 4 and heads 6"));
  spec.kv_heads = 2, spec.positions = 0;
  EXPECT_EQ(
      message_of([&] { family().prepare_cached(spec); }),
      device_says("cached attention needs heads, head_width and positions of at least 1 and window of at "
                  "least 0, found 6, 4, 0 and 0"));
  spec.positions = 8, spec.dtype = DType::kI8;
  EXPECT_THROW(family().prepare_cached(spec), Error);

  spec.dtype = DType::kF32;
  const auto kernel = family().prepare_cached(spec);
  const Owned q(device_, Shape{2, 2, 24}, DType::kF32), k(device_, Shape{2, 2, 8}, DType::kF32),
      state(device_, Shape{3, kernel->sequence_bytes()}, DType::kU8),
      scratch(device_, Shape{static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8);
  using Numbers = std::vector<std::int64_t>;
  const auto says = [&](const Numbers& first, const Numbers& count, const Numbers& kept) {
    return message_of([&] { kernel->forward(q, k, k, {}, {first, count, kept}, state, q, scratch); });
  };
  const auto expected = [](const std::string& rest) { return device_says("cached attention: " + rest); };
  EXPECT_EQ(says({0, 7}, {2, 2}, {0, 1}),
            expected("row 1 has 2 places from position 7 on, expected at most 2 places within 8 positions"));
  EXPECT_EQ(says({-1, 0}, {2, 2}, {0, 1}),
            expected("row 0 has 2 places from position -1 on, expected at most 2 places within 8 positions"));
  EXPECT_EQ(says({0, 0}, {3, 2}, {0, 1}),
            expected("row 0 has 3 places from position 0 on, expected at most 2 places within 8 positions"));
  EXPECT_EQ(says({0, 0}, {2, 2}, {0, 3}),
            expected("row 1 goes on with sequence 3, expected one of the 3 in the state"));
  EXPECT_EQ(says({0, 0}, {2, 2}, {2, 2}),
            expected("two rows go on with sequence 2, expected one row for each"));
  EXPECT_EQ(says({0, 0}, {2, 0}, {2, 2}), "");
  EXPECT_EQ(says({0}, {2}, {2}),
            expected("rows have 1, 1 and 1 entries (first, count, kept), expected 2 each"));
  const Numbers none{0, 0}, kept{0, 1};
  EXPECT_THAT(message_of([&] {
                kernel->forward(k, k, k, {}, {none, none, kept}, state, q, scratch);
              }),
              ::testing::HasSubstr("cached attention: q"));
  const Owned short_state(device_, Shape{kernel->sequence_bytes() - 1}, DType::kU8);
  EXPECT_THAT(message_of([&] {
                kernel->forward(q, k, k, {}, {none, none, kept}, short_state, q, scratch);
              }),
              ::testing::HasSubstr("cached attention: state"));
  spec.documents = true;
  const auto with_documents = family().prepare_cached(spec);
  EXPECT_THAT(message_of([&] {
                with_documents->forward(q, k, k, {}, {none, none, kept}, state, q, scratch);
              }),
              ::testing::HasSubstr("cached attention: documents"));
}

INSTANTIATE_TEST_SUITE_P(Device, CachedAttentionFamily, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::cached_attention_test
