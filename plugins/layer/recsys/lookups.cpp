// Placement of tables, and lookups of their rows from either side.
#include "lookups.hpp"

#include <fmt/format.h>
#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/tensor_values.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

namespace tenon::recsys {

// Offsets and the greedy balancer.

std::vector<std::int64_t> even_offsets(std::int64_t rows, int replicas) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t r = 0; r <= replicas; ++r) offsets.push_back(rows * r / replicas);
  return offsets;
}

std::vector<std::int64_t> whole_offsets(std::int64_t rows, int owner, int replicas) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(owner) + 1, 0);
  offsets.resize(static_cast<std::size_t>(replicas) + 1, rows);
  return offsets;
}

std::vector<int> balance(std::span<const std::int64_t> rows, int replicas) {
  const double all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rows[a] > rows[b]; });
  std::vector<double> load(replicas, 0);
  std::vector<int> owner(rows.size());
  for (const std::size_t table : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += static_cast<double>(rows[table]) / all + 1.0 / static_cast<double>(rows.size());
    owner[table] = static_cast<int>(least - load.begin());
  }
  return owner;
}

// Rows are read in blocks of whole bags; the first row of a bag is copied, the others are added.

template <class Real>
void pool(const RowTable& table, std::span<const std::int32_t> ids, std::span<const std::int64_t> begin,
          Real* sums, std::int64_t stride, PoolingScratch<Real>& scratch, Reads reads) {
  const std::int64_t width = table.width();
  const auto bags = static_cast<std::int64_t>(begin.size()) - 1;
  const auto at = [&](std::int64_t bag) { return begin[bag]; };
  for (std::int64_t first = 0; first < bags;) {
    std::int64_t last = first + 1;
    while (last < bags && at(last + 1) - at(first) <= kRowsAtOnce) ++last;
    scratch.ids.clear();
    for (std::int64_t i = at(first); i < at(last); ++i) {
      if (ids[i] >= 0) scratch.ids.push_back(ids[i]);
    }
    const auto count = static_cast<std::int64_t>(scratch.ids.size());
    scratch.rows.resize(std::max<std::int64_t>(1, count * width));
    if (count > 0) {
      TensorView rows;
      rows.data = scratch.rows.data();
      rows.dtype = table.dtype();
      rows.shape = Shape{count, width};
      if (reads == Reads::kTraining) {
        table.read(scratch.ids, rows);
      } else {
        table.scan(scratch.ids, rows);
      }
    }
    const Real* row = scratch.rows.data();
    for (std::int64_t bag = first; bag < last; ++bag) {
      Real* sum = sums + bag * stride;
      bool empty = true;
      for (std::int64_t i = at(bag); i < at(bag + 1); ++i) {
        if (ids[i] < 0) continue;
        if (empty) {
          std::copy(row, row + width, sum);
        } else {
          for (std::int64_t j = 0; j < width; ++j) sum[j] += row[j];
        }
        empty = false;
        row += width;
      }
      if (empty) std::fill(sum, sum + width, Real{0});
    }
    first = last;
  }
}

template void pool(const RowTable&, std::span<const std::int32_t>, std::span<const std::int64_t>, float*,
                   std::int64_t, PoolingScratch<float>&, Reads);
template void pool(const RowTable&, std::span<const std::int32_t>, std::span<const std::int64_t>, double*,
                   std::int64_t, PoolingScratch<double>&, Reads);

namespace {

// Three exchanges: sizes, ids, pooled vectors. Buffers are as large as a batch can need, or grow to twice
// what one needs: the requests of other replicas differ from batch to batch.

template <class Real>
constexpr DType kRealType = sizeof(Real) == 8 ? DType::kF64 : DType::kF32;

}  // namespace

template <class Real>
Lookups<Real>::Lookups(const BagShape& shape, std::vector<std::vector<std::int64_t>> offsets,
                       Communicator& replicas)
    : shape_(shape),
      offsets_(std::move(offsets)),
      replicas_(replicas),
      asks_(replicas.size()),
      ask_words_(asks_.size()),
      asked_words_(asks_.size()),
      wanted_values_(asks_.size()),
      given_values_(asks_.size()),
      one_each_(asks_.size(), 1),
      requests_(asks_.size()),
      runs_(asks_.size() * offsets_.size()),
      seen_(shape.batch * shape.tables) {
  const std::size_t bags = seen_.size(), ids = bags * static_cast<std::size_t>(shape.length);
  for (Ask& ask : asks_) {
    ask.bags.reserve(shape.tables);
    ask.lengths.reserve(bags);
    ask.ids.reserve(ids);
    ask.places.reserve(bags);
  }
  // A bag has at most as many owners as ids.
  out_.reserve(asks_.size() * static_cast<std::size_t>(shape.tables) + 2 * ids);
  for (Run& run : runs_) run.begin.reserve(static_cast<std::size_t>(shape.batch) + 1);
}

template <class Real>
void Lookups<Real>::run(std::span<const std::int32_t> ids, std::span<const RowTable* const> tables,
                        Real* sums, Reads reads) {
  sort_out(ids);
  pack_asks();
  send_asks();
  answer(tables, reads);
  send_answers();
  combine(sums);
}

template <class Real>
void Lookups<Real>::ask(std::span<const std::int32_t> ids, RowService& service, int node, Real* sums) {
  sort_out(ids);
  pack_asks();
  std::int64_t values = 0;
  for (const std::int64_t count : wanted_values_) values += count;
  resize_with_room(got_, static_cast<std::size_t>(values), 0);
  const std::int32_t* words = out_.data();
  Real* answers = got_.data();
  for (std::size_t r = 0; r < peers(); ++r) {
    requests_[r] = {};
    if (wanted_values_[r] > 0) {
      requests_[r] = {std::as_bytes(std::span(words, ask_words_[r])),
                      std::as_writable_bytes(std::span(answers, wanted_values_[r]))};
    }
    words += ask_words_[r];
    answers += wanted_values_[r];
  }
  service.ask(node, requests_);
  combine(sums);
}

template <class Real>
void Lookups<Real>::sort_out(std::span<const std::int32_t> ids) {
  for (Ask& ask : asks_) {
    ask.bags.assign(shape_.tables, 0);
    ask.lengths.clear();
    ask.ids.clear();
    ask.places.clear();
  }
  for (std::int64_t t = 0; t < shape_.tables; ++t) {
    const std::size_t table = t;
    const std::vector<std::int64_t>& offsets = offsets_[table];
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      const std::int64_t place = b * shape_.tables + t;
      for (std::int64_t l = 0; l < shape_.length; ++l) {
        const std::int32_t id = ids[place * shape_.length + l];
        if (id < 0) continue;
        const auto behind = std::upper_bound(offsets.begin() + 1, offsets.end(), std::int64_t{id});
        Ask& ask = asks_[behind - offsets.begin() - 1];
        if (ask.places.empty() || ask.places.back() != place) {
          ask.places.push_back(place);
          ask.lengths.push_back(0);
          ++ask.bags[table];
        }
        ++ask.lengths.back();
        ask.ids.push_back(id);
      }
    }
  }
}

template <class Real>
void Lookups<Real>::pack_asks() {
  out_.clear();
  for (std::size_t r = 0; r < peers(); ++r) {
    const Ask& ask = asks_[r];
    const std::size_t before = out_.size();
    for (const auto* words : {&ask.bags, &ask.lengths, &ask.ids})
      out_.insert(out_.end(), words->begin(), words->end());
    ask_words_[r] = static_cast<std::int64_t>(out_.size() - before);
    wanted_values_[r] = static_cast<std::int64_t>(ask.places.size()) * shape_.width;
  }
}

template <class Real>
void Lookups<Real>::send_asks() {
  replicas_.wait(replicas_.start_all_to_all(flat_view(ask_words_, DType::kI64), one_each_,
                                            flat_view(asked_words_, DType::kI64), one_each_));
  std::int64_t words = 0;
  for (const std::int64_t count : asked_words_) words += count;
  resize_with_room(in_, static_cast<std::size_t>(words), 0);
  replicas_.wait(replicas_.start_all_to_all(flat_view(out_, DType::kI32), ask_words_,
                                            flat_view(in_, DType::kI32), asked_words_));
}

template <class Real>
void Lookups<Real>::answer(std::span<const RowTable* const> tables, Reads reads) {
  std::int64_t bags_so_far = 0;
  run_count_ = 0;
  const std::int32_t* message = in_.data();
  for (std::size_t r = 0; r < peers(); ++r) {
    const std::int32_t* lengths = message + shape_.tables;
    std::int64_t bags = 0;
    for (std::int64_t t = 0; t < shape_.tables; ++t) bags += message[t];
    const std::int32_t* ids = lengths + bags;
    for (std::int64_t t = 0; t < shape_.tables; ++t) {
      if (message[t] == 0) continue;
      Run& run = runs_[run_count_++];
      run.table = static_cast<std::size_t>(t);
      run.first_bag = bags_so_far;
      run.bags = message[t];
      run.ids = ids;
      run.begin.assign(1, 0);
      for (std::int64_t bag = 0; bag < run.bags; ++bag) run.begin.push_back(run.begin.back() + *lengths++);
      ids += run.begin.back();
      bags_so_far += run.bags;
    }
    given_values_[r] = bags * shape_.width;
    message += asked_words_[r];
  }
  resize_with_room(given_, static_cast<std::size_t>(bags_so_far * shape_.width), 0);
  parallel_for(static_cast<std::int64_t>(run_count_), 1, [&](std::int64_t begin, std::int64_t end) {
    static thread_local PoolingScratch<Real> scratch;
    for (std::int64_t i = begin; i < end; ++i) {
      const Run& run = runs_[i];
      const std::span<const std::int32_t> ids(run.ids, run.begin.back());
      pool<Real>(*tables[run.table], ids, run.begin, given_.data() + run.first_bag * shape_.width,
                 shape_.width, scratch, reads);
    }
  });
}

template <class Real>
void Lookups<Real>::send_answers() {
  std::int64_t values = 0;
  for (const std::int64_t count : wanted_values_) values += count;
  resize_with_room(got_, static_cast<std::size_t>(values), 0);
  replicas_.wait(replicas_.start_all_to_all(flat_view(given_, kRealType<Real>), given_values_,
                                            flat_view(got_, kRealType<Real>), wanted_values_));
}

template <class Real>
void Lookups<Real>::combine(Real* sums) {
  const std::int64_t width = shape_.width;
  std::fill(seen_.begin(), seen_.end(), static_cast<unsigned char>(0));
  const Real* from = got_.data();
  for (const Ask& ask : asks_) {
    for (const std::int64_t place : ask.places) {
      Real* sum = sums + place * width;
      unsigned char& seen = seen_[place];
      if (seen == 0) {
        std::copy(from, from + width, sum);
      } else {
        for (std::int64_t j = 0; j < width; ++j) sum[j] += from[j];
      }
      seen = 1;
      from += width;
    }
  }
  for (std::size_t place = 0; place < seen_.size(); ++place) {
    if (seen_[place] != 0) continue;
    Real* sum = sums + static_cast<std::int64_t>(place) * width;
    std::fill(sum, sum + width, Real{0});
  }
}

template class Lookups<float>;
template class Lookups<double>;

// Reads a request from another replica. Scratch memory belongs to the thread: several
// replicas ask at once.

template <class Real>
void PooledAnswers<Real>::answer(std::span<const std::byte> request, std::span<const RowTable* const> tables,
                                 std::span<std::byte> answer) const {
  static thread_local PoolingScratch<Real> scratch;
  static thread_local std::vector<std::int64_t> begin;
  const std::span<const std::int32_t> words(reinterpret_cast<const std::int32_t*>(request.data()),
                                            request.size() / sizeof(std::int32_t));
  const std::size_t width = width_;
  std::size_t bags = 0, ids = 0;
  const auto fits = [&] {
    if (request.size() % sizeof(std::int32_t) != 0 || words.size() < tables.size()) return false;
    for (const std::int32_t count : words.first(tables.size())) {
      if (count < 0) return false;
      bags += count;
    }
    if (words.size() - tables.size() < bags || answer.size() != bags * width * sizeof(Real)) return false;
    for (const std::int32_t length : words.subspan(tables.size(), bags)) {
      if (length < 0) return false;
      ids += length;
    }
    return words.size() == tables.size() + bags + ids;
  };
  if (!fits()) {
    fail_run(
        fmt::format("a lookup of {} bytes in {} tables, {} bags, {} ids, wants {} bytes back: replicas do "
                    "not run the same model",
                    request.size(), tables.size(), bags, ids, answer.size()));
  }
  const std::int32_t* length = words.data() + tables.size();
  const std::int32_t* id = length + bags;
  auto* sums = reinterpret_cast<Real*>(answer.data());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::size_t count = words[t];
    begin.assign(1, 0);
    for (std::size_t bag = 0; bag < count; ++bag) begin.push_back(begin.back() + *length++);
    pool<Real>(*tables[t], {id, static_cast<std::size_t>(begin.back())}, begin, sums, width_, scratch,
               Reads::kTraining);
    id += begin.back();
    sums += count * width;
  }
}

template class PooledAnswers<float>;
template class PooledAnswers<double>;

}  // namespace tenon::recsys
