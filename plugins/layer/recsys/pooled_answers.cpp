// Reads a request from another replica (pooled_answers.hpp). Scratch memory belongs to the thread: several
// replicas ask at once.
#include "pooled_answers.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <vector>

namespace tenon::recsys {

template <class Real>
void PooledAnswers<Real>::answer(std::span<const std::byte> request, std::span<const RowTable* const> tables,
                                 std::span<std::byte> answer) const {
  static thread_local PoolingScratch<Real> scratch;
  static thread_local std::vector<std::int64_t> begin;
  const std::span<const std::int32_t> words(reinterpret_cast<const std::int32_t*>(request.data()),
                                            request.size() / sizeof(std::int32_t));
  const auto width = static_cast<std::size_t>(width_);
  std::size_t bags = 0, ids = 0;
  const auto fits = [&] {
    if (request.size() % sizeof(std::int32_t) != 0 || words.size() < tables.size()) return false;
    for (const std::int32_t count : words.first(tables.size())) {
      if (count < 0) return false;
      bags += static_cast<std::size_t>(count);
    }
    if (words.size() - tables.size() < bags || answer.size() != bags * width * sizeof(Real)) return false;
    for (const std::int32_t length : words.subspan(tables.size(), bags)) {
      if (length < 0) return false;
      ids += static_cast<std::size_t>(length);
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
    const auto count = static_cast<std::size_t>(words[t]);
    begin.assign(1, 0);
    for (std::size_t bag = 0; bag < count; ++bag) begin.push_back(begin.back() + *length++);
    pool<Real>(*tables[t], {id, static_cast<std::size_t>(begin.back())}, begin, sums, width_, scratch);
    id += begin.back();
    sums += count * width;
  }
}

template class PooledAnswers<float>;
template class PooledAnswers<double>;

}  // namespace tenon::recsys
