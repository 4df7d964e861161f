// Counters of the fake cuDNN, and switches that make it fail. For tests.
#pragma once

namespace tenon::cuda {

struct FakeCudnn {
  int convolved = 0;      ///< passes that ran
  int rounded = 0;        ///< passes that may round operands to TF32
  int alive = 0;          ///< descriptors and handles that were made and not destroyed
  bool starts = true;     ///< the next handle is made
  bool fails = false;     ///< the next passes fail
  bool ordered = true;    ///< has algorithms that add in a fixed order
  bool declines = false;  ///< has no algorithm for anything
};

FakeCudnn& fake_cudnn();

}  // namespace tenon::cuda
