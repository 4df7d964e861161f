#include "transport_rig.hpp"

#include <tenon/random.hpp>

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <numeric>
#include <thread>

namespace tenon::conformance {

TransportRig::TransportRig(Subject& subject, int ranks, double deadline_s)
    : clock_(make_wall_clock()),
      all_(static_cast<std::size_t>(ranks)),
      transport_(subject.make<Transport>()) {
  std::iota(all_.begin(), all_.end(), 0);
  transport_->connect(
      {.ranks = ranks, .deadline_s = deadline_s, .link = {}, .seed = 1, .clock = clock_.get()});
  if (static_cast<int>(transport_->local_ranks().size()) != ranks)
    not_applicable("its ranks live in other processes, which this kit does not start");
}

std::unique_ptr<Communicator> TransportRig::open(int rank, std::string_view name, std::uint32_t epoch,
                                                 Purpose purpose) {
  return transport_->open(rank, {.ranks = all_, .name = name, .purpose = purpose, .epoch = epoch});
}

std::vector<std::string> TransportRig::run(const std::function<void(int, Communicator&)>& body) {
  std::vector<int> ids;
  for (const int rank : all_) ids.push_back(clock_->announce(rank, 0, fmt::format("rank{}", rank)));
  std::vector<std::string> errors(all_.size());
  std::vector<std::exception_ptr> failures(all_.size());
  std::vector<std::thread> threads;
  for (const int rank : all_) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      clock_->enter(ids[r]);
      try {
        const auto communicator = open(rank, "all");
        body(rank, *communicator);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      } catch (...) {
        failures[r] = std::current_exception();
      }
      clock_->leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return errors;
}

void TransportRig::run_well(const std::string& what, const std::function<void(int, Communicator&)>& body) {
  const std::vector<std::string> errors = run(body);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty())
      fail(fmt::format("{} failed on rank {} of {}: {}", what, rank, errors.size(), errors[rank]));
  }
}

std::vector<float> drawn(std::uint64_t seed, int rank, std::size_t count) {
  std::vector<float> values(count);
  const RandomKey key = random_key(seed, "transport");
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(random_normal(key, static_cast<std::uint64_t>(rank), i));
  return values;
}

void wait_a_little(std::uint64_t seed, int rank, std::uint64_t where) {
  const RandomKey key = random_key(seed, "delay");
  std::this_thread::sleep_for(
      std::chrono::microseconds(random_below(key, static_cast<std::uint64_t>(rank), where, 1500)));
}

}  // namespace tenon::conformance
