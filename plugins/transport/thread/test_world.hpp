// For the tests of this folder: ranks as threads over one ThreadTransport, under either clock.
#pragma once

#include "thread_transport.hpp"

#include <tenon/clock.hpp>

#include <tenon/error.hpp>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace tenon::thread_transport {

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::kI64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::kU8;
}

template <typename T>
TensorView view_of(std::vector<T>& values) {
  return {values.data(), Shape{static_cast<std::int64_t>(values.size())}, dtype_of<T>()};
}

template <typename T>
TensorView rows_of(std::vector<T>& values, int rows) {
  return {values.data(), Shape{rows, static_cast<std::int64_t>(values.size()) / rows}, dtype_of<T>()};
}

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class TestWorld {
 public:
  explicit TestWorld(int ranks, bool simulated = false, double deadline_s = 30, LinkSpec link = {})
      : clock_(simulated ? make_simulated_clock(20) : make_wall_clock()), all_(ranks) {
    std::iota(all_.begin(), all_.end(), 0);
    transport_.connect(
        {.ranks = ranks, .deadline_s = deadline_s, .link = link, .seed = 1, .clock = clock_.get()});
  }

  int ranks() const { return static_cast<int>(all_.size()); }
  Clock& clock() { return *clock_; }
  ThreadTransport& transport() { return transport_; }
  std::span<const int> all() const { return all_; }

  std::unique_ptr<Communicator> open(int rank, std::string_view name = "replicas", std::uint32_t epoch = 0) {
    return transport_.open(rank,
                           {.ranks = all_, .name = name, .purpose = Purpose::kGradient, .epoch = epoch});
  }

  /// Runs `body(rank, its end of "replicas")` on a thread per rank; returns each error, "" for none.
  std::vector<std::string> run(const std::function<void(int, Communicator&)>& body) {
    std::vector<int> ids;
    for (const int rank : all_) ids.push_back(clock_->announce(rank, 0, "rank" + std::to_string(rank)));
    std::vector<std::string> errors(all_.size());
    std::vector<std::thread> threads;
    for (const int rank : all_) {
      threads.emplace_back([&, rank] {
        const std::size_t r = rank;
        errors[r] = error_of([&] {
          clock_->enter(ids[r]);
          const auto communicator = open(rank);
          body(rank, *communicator);
        });
        clock_->leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  std::unique_ptr<Clock> clock_;
  std::vector<int> all_;
  ThreadTransport transport_;
};

/// The errors of a run in which nothing may fail.
inline std::vector<std::string> none(int ranks) {
  return std::vector<std::string>(ranks);
}

}  // namespace tenon::thread_transport
