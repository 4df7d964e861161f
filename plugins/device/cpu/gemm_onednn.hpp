// Products by oneDNN's matmul primitive. Must not be run inside parallel_for: oneDNN would silently use one
// thread there.
#pragma once

#include "gemm.hpp"

#include <memory>
#include <string>

namespace tenon::cpu {

/// Version of the library that is loaded, e.g. "2.6.3".
std::string onednn_version();

/// The library on this processor; shared by the plans of one device.
class Onednn {
 public:
  Onednn();
  ~Onednn();
  Onednn(const Onednn&) = delete;
  Onednn& operator=(const Onednn&) = delete;

  /// True if the processor has units for bf16 products that are faster than those for f32.
  bool native_bf16() const { return native_bf16_; }
  /// A plan for f32 or bf16 operands of one dtype, C f32 or bf16. Null where the library has only its plain
  /// loops.
  std::unique_ptr<Gemm> gemm(const GemmSpec& spec) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  bool native_bf16_ = false;
};

}  // namespace tenon::cpu
