// For tests of transports whose ranks are processes: one transport object per rank, all in this process, each
// used by its own thread as its process would. The suite of process_suite_*.cpp is compiled into a test
// program for each kind of transport, which defines how to create such a world.
#pragma once

#include <tenon/clock.hpp>
#include <tenon/transport.hpp>

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace tenon::testing {

class ProcessWorld {
 public:
  virtual ~ProcessWorld() = default;
  virtual std::unique_ptr<Communicator> open(int rank, const GroupSpec& spec) = 0;
  virtual void cancel(int rank, std::string_view reason) = 0;
  virtual LinkCounts counts(int rank, Purpose purpose) = 0;
  /// Breaks the rank's connections, as if its process had been killed.
  virtual void kill(int rank) = 0;
  /// Ends the rank's transport in order.
  virtual void end(int rank) = 0;
  /// Returns whether it reduces numbers of this type; it moves all types.
  virtual bool reduces(DType) const { return true; }

  explicit ProcessWorld(int ranks) : all_(ranks) { std::iota(all_.begin(), all_.end(), 0); }
  int ranks() const { return static_cast<int>(all_.size()); }
  std::span<const int> all() const { return all_; }
  std::unique_ptr<Communicator> open(int rank, std::string_view name = "replicas", std::uint32_t epoch = 0) {
    return open(rank, GroupSpec{.ranks = all_, .name = name, .purpose = Purpose::kGradient, .epoch = epoch});
  }

  /// Runs `body(rank, its end of "replicas")` on a thread per rank; returns each error, "" for none.
  std::vector<std::string> run(const std::function<void(int, Communicator&)>& body) {
    std::vector<std::string> errors(all_.size());
    std::vector<std::thread> threads;
    for (const int rank : all_) {
      threads.emplace_back([&, rank] {
        try {
          const auto communicator = open(rank);
          body(rank, *communicator);
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  std::vector<int> all_;
};

/// Defined by each test program.
std::unique_ptr<ProcessWorld> make_process_world(int ranks, double deadline_s = 30);

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kI32;
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
std::string text_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
/// Waits until `holds()`, which another rank makes true; fails after 30 s.
template <typename Condition>
void await(Condition&& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > limit) fail_run("a rank of this test waited 30 s for another one");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
/// The errors of a run in which nothing may fail.
inline std::vector<std::string> none(int ranks) {
  return std::vector<std::string>(ranks);
}

}  // namespace tenon::testing
