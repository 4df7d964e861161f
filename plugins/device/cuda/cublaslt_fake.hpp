// Counters of the fake cuBLASLt, and switches that make it fail. For tests.
#pragma once

namespace tenon::cuda {

struct FakeCublasLt {
  int asked = 0;          ///< requests for an algorithm
  int multiplied = 0;     ///< calls of cublasLtMatmul
  int rounded = 0;        ///< calls that may round operands to TF32
  int alive = 0;          ///< descriptors that were made and not destroyed
  bool fails = false;     ///< the next products fail
  bool declines = false;  ///< has no algorithm for anything
};

FakeCublasLt& fake_cublaslt();

}  // namespace tenon::cuda
