// Ranks as threads around the transport under test, each with its own end of a group, and the error that each
// threw. A transport whose ranks are processes is created once per rank, all in this process.
#pragma once

#include "subject.hpp"

#include <tenon/clock.hpp>
#include <tenon/transport.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::conformance {

class TransportRig {
 public:
  TransportRig(Subject& subject, int ranks, double deadline_s = 10);

  int ranks() const { return static_cast<int>(all_.size()); }
  /// The transport that serves `rank`.
  Transport& transport(int rank);
  std::span<const int> all() const { return all_; }
  std::unique_ptr<Communicator> open(int rank, std::string_view name, std::uint32_t epoch = 0,
                                     Purpose purpose = Purpose::kGradient);
  /// Runs `body` on a thread per rank, with its end of group "all". Returns the texts of errors; "" = none.
  std::vector<std::string> run(const std::function<void(int, Communicator&)>& body);
  /// As run(), but an error fails the check; `what` begins the message. Failures of checks are passed on.
  void run_well(const std::string& what, const std::function<void(int, Communicator&)>& body);

 private:
  void connect_threads(const WorldSpec& world);
  void connect_processes(Subject& subject, const WorldSpec& world);

  std::unique_ptr<Clock> clock_;
  std::vector<int> all_;
  std::vector<testing::Made<Transport>> transports_;  // one, or one for each rank
};

/// Throws NotApplicable if the transport under test refuses ranks as threads of one process.
void require_threads(Subject& subject);

/// A flat view of numbers in memory.
template <typename T>
TensorView view_of(std::vector<T>& values, DType dtype) {
  return {values.data(), Shape{static_cast<std::int64_t>(values.size())}, dtype, MemorySpace::kHost};
}
inline TensorView view_of(std::vector<float>& values) {
  return view_of(values, DType::kF32);
}
/// The same as a view [rows, n].
inline TensorView rows_of(std::vector<float>& values, int rows) {
  TensorView view = view_of(values);
  view.shape = Shape{rows, static_cast<std::int64_t>(values.size()) / rows};
  return view;
}
/// Normal numbers that differ by rank.
std::vector<float> drawn(std::uint64_t seed, int rank, std::size_t count);
/// Sleeps up to a few milliseconds, at random.
void wait_a_little(std::uint64_t seed, int rank, std::uint64_t where);

}  // namespace tenon::conformance
