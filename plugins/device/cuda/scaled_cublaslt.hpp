// Products of codes and block scales by cuBLASLt. Only in the build for GPUs.
#pragma once

#include "scaled.hpp"

#include <memory>
#include <string>

namespace tenon::cuda {

/// One per device, with a handle of its own.
class ScaledLibrary {
 public:
  /// Null, and why, where the library is absent or does not start.
  static std::unique_ptr<ScaledLibrary> open(Queue& queue, std::string& reason);
  ~ScaledLibrary();
  ScaledLibrary(const ScaledLibrary&) = delete;
  ScaledLibrary& operator=(const ScaledLibrary&) = delete;

  /// "" = a GPU of this architecture (90 for sm_90) has units for this kind; else the reason.
  static std::string absent_units(ScaleKind kind, int architecture);

  /// For a spec that scaled_refusal() accepts, on a GPU of `architecture`, 0 = the queue's. Null, and why, in
  /// the library's words where it was asked.
  std::unique_ptr<ScaledProduct> product(const ScaledProductSpec& spec, std::string& reason,
                                         int architecture = 0);

  struct State;

 private:
  explicit ScaledLibrary(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tenon::cuda
