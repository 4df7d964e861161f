// What the stand-in for cuDNN counts, and how it is told to fail. For tests.
#pragma once

namespace tenon::cuda {

struct FakeCudnn {
  int convolved = 0;      ///< passes that ran
  int rounded = 0;        ///< those that may round operands to TF32
  int alive = 0;          ///< descriptors and handles that were made and not destroyed
  bool starts = true;     ///< the next handle is made
  bool fails = false;     ///< the next passes do
  bool ordered = true;    ///< has algorithms that add in a fixed order
  bool declines = false;  ///< has no algorithm for anything
};

FakeCudnn& fake_cudnn();

}  // namespace tenon::cuda
