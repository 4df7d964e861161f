#include "thread_rounds.hpp"

#include "base/elapsed.hpp"

#include <tenon/parallel.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tenon::conformance {
namespace {

constexpr int kTeams[] = {2, 4};
constexpr int kRounds = 6;
/// Rounds after the first of each team begin within these seconds.
constexpr double kPatience = 3;

/// The index of the first element whose bits differ; the size if none does. NaN equals itself.
std::size_t first_difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::size_t i = 0;
  while (i < a.size() && std::memcmp(&a[i], &b[i], sizeof(double)) == 0) ++i;
  return i;
}

}  // namespace

void require_same_bits(Subject& subject, const std::string& what,
                       const std::function<std::vector<double>(Device&)>& compute) {
  subject.require_same_bits_on_threads();
  const char* const forced = std::getenv("OMP_NUM_THREADS");
  if (forced != nullptr && std::string_view(forced) == "1")
    not_applicable("one thread only: a sanitizer does not see the barriers of the loop");
  const auto begin = std::chrono::steady_clock::now();
  const auto with = [&](int threads) {
    // Kernels that are plain loops, so that only the component's own sums can depend on threads.
    const testing::Made<Device> device = subject.another_device("reference", threads);
    set_parallel_threads(threads);
    std::vector<double> result = compute(*device);
    set_parallel_threads(1);
    return result;
  };
  const std::vector<double> expected = with(1);
  for (int round = 0; round < kRounds; ++round) {
    for (const int threads : kTeams) {
      if (round > 0 && base::seconds_since(begin) > kPatience) return;
      const std::vector<double> found = with(threads);
      if (found.size() != expected.size())
        fail(fmt::format("{}: {} results with {} threads, {} with one", what, found.size(), threads,
                         expected.size()));
      const std::size_t at = first_difference(found, expected);
      if (at == found.size()) continue;
      fail(fmt::format(
          "{}: with {} threads result {} of {} is {:.17g} in round {}, with one thread {:.17g}. Results "
          "must have the same bits with any number of threads: keep one partial sum per fixed block of "
          "parallel_for and add them in the order of blocks, not in that in which threads end",
          what, threads, at, found.size(), found[at], round + 1, expected[at]));
    }
  }
}

}  // namespace tenon::conformance
